/*
 * A bare pipeline on cimba, a library for discrete-event simulation in C: stages of processes with a bounded queue in
 * front of each, and every output goes to a random queue of the next stage. twin_bench.py builds and runs it.
 *
 *     pipeline STAGES WIDTH CAPACITY STEPS COST_MS...
 *
 * runs until the processes have done STEPS steps together. COST_MS is the time of a step, one for each stage. It prints
 * the steps, the simulated milliseconds, and the CPU time in milliseconds. It has no buffers that channels share, no
 * credits and no barriers.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cimba.h>

struct stage {
    struct cmb_objectqueue **inputs;
    struct cmb_objectqueue **outputs;
    double cost_ms;
};

struct worker {
    struct cmb_process *process;
    struct cmb_objectqueue *input;
    const struct stage *stage;
};

static uint64_t width, steps_left, steps_done;
static struct worker *workers;
static uint64_t worker_count;

static void stop_all(void *subject, void *object)
{
    cmb_unused(subject);
    cmb_unused(object);
    for (uint64_t i = 0; i < worker_count; i++) {
        if (cmb_process_status(workers[i].process) == CMB_PROCESS_RUNNING) {
            cmb_process_stop(workers[i].process, NULL);
        }
    }
}

static void *work(struct cmb_process *me, void *context)
{
    cmb_unused(me);
    const struct worker *own = context;
    void *item = context;
    while (steps_left > 0) {
        if (own->input != NULL) {
            cmb_objectqueue_get(own->input, &item);
        }
        cmb_process_hold(own->stage->cost_ms);
        steps_done++;
        if (--steps_left == 0) {
            cmb_event_schedule(stop_all, NULL, NULL, cmb_time(), 0);
        }
        if (own->stage->outputs != NULL) {
            const uint64_t to = (uint64_t)(cmb_random() * (double)width);
            cmb_objectqueue_put(own->stage->outputs[to < width ? to : width - 1], item);
        }
    }
    return NULL;
}

int main(int count, char **arguments)
{
    if (count < 5) {
        return 2;
    }
    const uint64_t stages = strtoull(arguments[1], NULL, 10);
    width = strtoull(arguments[2], NULL, 10);
    const uint64_t capacity = strtoull(arguments[3], NULL, 10);
    steps_left = strtoull(arguments[4], NULL, 10);
    if ((uint64_t)count != 5 + stages) {
        return 2;
    }
    const clock_t began = clock();
    cmb_logger_flags_off(CMB_LOGGER_INFO);
    cmb_random_initialize(1u);
    cmb_event_queue_initialize(0.0);
    struct stage *all = calloc(stages, sizeof(*all));
    worker_count = stages * width;
    workers = calloc(worker_count, sizeof(*workers));
    for (uint64_t s = 0; s < stages; s++) {
        all[s].cost_ms = strtod(arguments[5 + s], NULL);
        if (s > 0) {
            all[s].inputs = calloc(width, sizeof(struct cmb_objectqueue *));
            all[s - 1].outputs = all[s].inputs;
        }
        for (uint64_t i = 0; i < width; i++) {
            struct worker *own = &workers[s * width + i];
            own->stage = &all[s];
            if (s > 0) {
                own->input = all[s].inputs[i] = cmb_objectqueue_create();
                cmb_objectqueue_initialize(own->input, "queue", capacity);
            }
            own->process = cmb_process_create();
            cmb_process_initialize(own->process, "subtask", work, own, 0);
            cmb_process_start(own->process);
        }
    }
    cmb_event_queue_execute();
    printf("%llu %.6g %.6g\n", (unsigned long long)steps_done, cmb_time(),
           (double)(clock() - began) * 1000.0 / CLOCKS_PER_SEC);
    return 0;
}
