"""Ranges of time and comparisons over a fake API: zooming, moving, annotations, two checkpoints, two windows."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from backend.contracts.annotations import AnnotationIn
from tests.support.browsing import go, opened, until_charts_fit
from tests.support.waiting import until
from tests.support.walking import press_key


def test_dragging_across_the_timeline_zooms_the_page_and_the_browser_goes_back(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#timeline-graph .points path")
        words, rows = page.locator("#job-range-words"), page.locator("#job-recent .table-scroll tbody tr")
        area = page.locator("#timeline-graph .nsewdrag").first.bounding_box()
        assert area is not None
        middle = area["y"] + area["height"] / 2
        page.mouse.move(area["x"] + area["width"] * 0.3, middle)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.6, middle, steps=5)
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
        expect(words).to_have_text(re.compile(r"^[2-9] checkpoints, "))
        expect(page.locator("#job-trend")).to_be_hidden()
        expect(rows).to_have_count(int(words.inner_text().split()[0]))

        # The range is part of the address, so a reload restores it.
        zoomed = words.inner_text()
        page.reload()
        expect(words).to_have_text(zoomed)
        page.go_back()
        expect(page).to_have_url(re.compile(r"/ui/jobs/jE$"))
        expect(words).to_have_text(re.compile(r"^The newest 17 checkpoints"))
        page.go_forward()
        expect(words).to_have_text(zoomed)
        assert watch.found == []


def test_a_range_is_chosen_moved_and_left_by_keyboard(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE?range=30d")
        words = page.locator("#job-range-words")
        expect(words).to_contain_text("Hourly values of")
        expect(words).to_contain_text("Rollups reach to")
        expect(page.locator("#job-range-choice")).to_have_value("30 days")
        expect(page.locator("#job-progress-head")).to_contain_text("Checkpoint 17")
        page.wait_for_selector("#timeline-graph .lines path")

        for button, count in (("job-range-earlier", 1), ("job-range-later", 2), ("job-range-out", 3)):
            before = page.url
            press_key(page.locator(f"#{button}"), "Enter")
            expect(page).not_to_have_url(before)
            expect(page).to_have_url(re.compile(r"\?from=\d+&to=\d+$"))
            expect(page.locator("#job-range-choice")).to_have_value("from … to …")
            assert page.evaluate("window.history.state.bsRanges") == count
        press_key(page.locator("#job-range-back"), "Enter")
        expect(page).to_have_url(before)

        press_key(page.locator("#job-range-own summary"), "Enter")
        page.fill("#job-range-from", "soon")
        page.keyboard.press("Enter")
        expect(page.locator("#job-range-problem")).to_contain_text("is not a time")
        for field, typed in (("from", "2026-01-02 03:04"), ("to", "2026-01-02 04:04")):
            page.click(f"#job-range-{field}")
            page.keyboard.press("Control+A")
            page.keyboard.type(typed)
        page.keyboard.press("Enter")
        expect(words).to_have_text("No checkpoints in this range.")
        expect(page.locator("#job-range-problem")).to_be_empty()

        page.click("#job-range-choice")
        page.click("[role=option]:has-text('newest 200')")
        expect(page).to_have_url(re.compile(r"/ui/jobs/jE$"))
        expect(words).to_have_text(re.compile(r"^The newest 17"))
        assert watch.found == []


def test_a_posted_annotation_appears_on_the_open_page(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jB2")
        page.wait_for_selector("#timeline-graph .points path")
        newest = max(c.triggered_at for c in fake.jobs["jB2"].checkpoints)
        link_out = "https://ci.example/812"
        posted = AnnotationIn(text="Deployed <b>2.14.0</b>", at=newest, link=link_out, tags=["deployment"])
        fake.annotations.add("jB2", posted, newest)
        row = page.locator("#job-recent tr:has-text('Deployed <b>2.14.0</b>')")
        expect(row).to_contain_text("deployment")
        link = row.locator("a")
        expect(link).to_have_attribute("href", link_out)
        expect(link).to_have_attribute("rel", re.compile("noopener"))
        expect(page.locator("#timeline-graph .annotation-text:has-text('Deployed')")).to_be_visible()
        assert watch.found == []


def test_two_checkpoints_are_compared_and_each_side_can_be_changed(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/runs/rruntime/checkpoints/20")
        page.click("#cp-head a:has-text('Compare')")
        expect(page.locator("#comparison-headline")).to_contain_text("#20 took 6.8 s, #1 4.0 s: +")
        expect(page.locator("#comparison-choice")).to_contain_text("#1 was chosen")
        expect(page).to_have_url(re.compile(r"/ui/jobs/jruntime/compare\?a=rruntime%3A20$"))

        page.click("#comparison-b-next")
        expect(page.locator("#comparison-b")).to_contain_text("Checkpoint 2")
        expect(page).to_have_url(re.compile(r"a=rruntime%3A20&b=rruntime%3A2$"))
        page.click("#comparison-swap")
        expect(page.locator("#comparison-headline")).to_contain_text("#2 took 4.2 s, #20 6.8 s: -")
        page.fill("#comparison-a-id", "17")
        page.keyboard.press("Enter")
        expect(page.locator("#comparison-a")).to_contain_text("Checkpoint 17")
        page.click("#comparison-a-recent")
        page.locator("[role=option]:visible:has-text('#12')").click()
        expect(page.locator("#comparison-a")).to_contain_text("Checkpoint 12")

        # What is opened and ordered is part of the address, so a reload restores it.
        page.click("#comparison-vertices button:has-text('enrich')")
        expect(page).to_have_url(re.compile(r"a=rruntime%3A12&b=rruntime%3A20&vertex=enrich$"))
        page.reload()
        expect(page.locator("#comparison-vertices button[aria-pressed=true]")).to_have_text("enrich")
        page.click("#comparison-toggle")
        expect(page.locator("#comparison-grid .ag-header-cell-text").nth(6)).to_have_text("difference")

        page.fill("#comparison-b-id", "999")
        page.keyboard.press("Enter")
        expect(page.locator("#comparison-message")).to_contain_text("no such checkpoint")
        assert watch.found == []


def test_the_neighbours_of_a_checkpoint_keep_the_opened_and_picked_subtask(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/runs/rruntime/checkpoints/20?open=enrich&pick=enrich:2&t=3000")
        page.wait_for_selector("#gantt-graph .barlayer path")
        page.keyboard.press("<")
        expect(page).to_have_url(re.compile(r"/checkpoints/19\?open=enrich&pick=enrich%3A2$"))
        # Until the neighbour's heading is shown, the page still has the buttons of the checkpoint before it, or none.
        expect(page.locator("#cp-head h1")).to_have_text("Checkpoint 19")
        expect(page.locator("#cp-picked-panel")).to_contain_text("enrich subtask 2")
        page.keyboard.press(">")
        expect(page.locator("#cp-head h1")).to_have_text("Checkpoint 20")
        page.click("#cp-head a:has-text('Next')")
        expect(page).to_have_url(re.compile(r"/checkpoints/21\?open=enrich&pick=enrich%3A2$"))
        expect(page.locator("#cp-picked-panel")).to_contain_text("enrich subtask 2")
        assert watch.found == []


def test_the_time_before_and_after_an_event_is_compared_in_any_two_windows(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.click("#job-recent summary")
        page.click("#job-recent a:has-text('before and after')")
        expect(page.locator("#windows-headline")).to_contain_text("Failed: 8 of 8 before, 9 of 9 after")
        expect(page).to_have_url(
            re.compile(r"/compare-windows\?before-from=\d+&before-to=\d+&after-from=\d+&after-to=\d+$")
        )
        page.fill("#windows-before-from", "yesterday")
        page.keyboard.press("Enter")
        expect(page.locator("#windows-message")).to_contain_text("is not an instant")
        page.click("#windows-measure")
        page.locator("[role=option]:visible:has-text('alignment')").first.click()
        expect(page).to_have_url(re.compile(r"&measure=alignment_max_ms$"))
        expect(page.locator("#windows-summary")).to_contain_text("Distribution of alignment. before: median at least")
        assert watch.found == []


def test_two_jobs_are_compared_by_a_search_with_the_settings_first_and_the_address_holds_it(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/compare?a=rruntime%3A23")
        expect(page.locator("#comparison-settings")).to_contain_text("same settings")
        page.focus("#comparison-other")
        page.keyboard.press("ControlOrMeta+A")
        page.keyboard.type("payments")
        # Answers to the first letters may have other jobs before it.
        expect(page.locator("[role=option]:visible").first).to_contain_text("payments")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"/jobs/jruntime/compare\?a=rruntime%3A23&(?=.*\bwith=j)(?=.*\bb=r)"))
        expect(page.locator("#comparison-settings")).to_contain_text("Only B #")
        names = "found => found.map(one => one.id).filter(id => ['comparison-settings', 'comparison-headline', "
        order = page.locator("#page [id]").evaluate_all(names + "'comparison-views', 'comparison-load'].includes(id))")
        assert order == ["comparison-settings", "comparison-headline", "comparison-views", "comparison-load"]
        address = page.url
        page.reload()
        expect(page.locator("#comparison-settings")).to_contain_text("Only B #")
        assert page.url == address
        page.click("#comparison-swap")
        expect(page).to_have_url(re.compile(r"/compare\?a=[^&]+&b=rruntime%3A23&with=jruntime$"))
        expect(page.locator("#comparison-b")).to_contain_text("of demo-backpressured")
        assert watch.found == []


def test_a_job_is_compared_with_yesterday_and_the_address_gets_both_times(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.click("#job-changes a:has-text('Compare with yesterday')")
        expect(page.locator("#windows-settings")).to_contain_text("same settings")
        expect(page).to_have_url(
            re.compile(r"/compare-windows\?before-from=\d+&before-to=\d+&after-from=\d+&after-to=\d+$")
        )
        before, after = (int(n) for n in re.findall(r"-from=(\d+)", page.url))
        assert after - before == 86_400_000
        page.click("#windows-other")
        page.locator("[role=option]:visible:has-text('demo-backpressured')").click()
        expect(page).to_have_url(re.compile(r"&with=jruntime$"))
        expect(page.locator("#windows-before")).to_contain_text("demo-backpressured")
        assert watch.found == []


# What Dash would send for the head of the page.
_ASK = """name => { window[name] = fetch('/ui/_dash-update-component?' + name, {
    method: 'POST', body: JSON.stringify({output: '..pressure-head.children..', changedPropIds: ['look.data']}),
}).then(answer => answer.json()); }"""


def test_an_answer_for_a_page_that_was_left_does_not_fill_the_next_page_of_the_same_kind(browser, site):
    held: list[Route] = []
    answer = {"multi": True, "response": {"pressure-head": {"children": "the first job"}}}
    with opened(browser, site) as (page, watch):
        page.route("**/_dash-update-component?late", lambda route: held.append(route))
        page.route("**/_dash-update-component?early", lambda route: route.fulfill(json=answer))
        page.goto("/ui/jobs/jE/pressure")
        page.wait_for_selector("#pressure-history-graph .scatterlayer .js-line")
        page.evaluate(_ASK, "early")
        assert page.evaluate("() => window.early") == answer
        page.evaluate(_ASK, "late")
        go(page, "/ui/jobs/jruntime/pressure?vertex=enrich&measure=busy")
        page.wait_for_selector("#pressure-history-graph .heatmaplayer image", state="attached")
        held[0].fulfill(json=answer)
        assert page.evaluate("() => window.late") == {"multi": True, "response": {}}
        assert watch.found == []


@pytest.mark.parametrize("is_noted", [False, True], ids=["before its size is noted", "after its size is noted"])
def test_a_chart_whose_redrawing_fails_once_after_a_resize_still_fills_its_box(browser, site, is_noted):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#timeline-graph .points path")
        until_charts_fit(page, "the timeline")
        page.evaluate(
            """isNoted => {
                const chart = document.querySelector('#timeline-graph .js-plotly-plot');
                const emit = chart.emit;
                chart.emit = function (name) {
                    if (name !== 'plotly_autosize') { return emit.apply(this, arguments); }
                    chart.emit = emit;
                    if (isNoted) { chart._fullLayout.width = chart.clientWidth; }
                    throw new Error('drawing failed');
                };
            }""",
            is_noted,
        )
        page.set_viewport_size({"width": 1000, "height": 900})
        until_charts_fit(page, "the timeline after its drawing failed once")
        assert [f for f in watch.found if "drawing failed" in f] == watch.found != []
        watch.found.clear()


def test_a_chart_that_is_emptied_while_it_is_drawn_again_is_left_alone(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#timeline-graph .points path")
        until_charts_fit(page, "the timeline")
        # As if the viewer left the page after the second attempt to draw the chart.
        page.evaluate(
            """() => {
                const chart = document.querySelector('#timeline-graph .js-plotly-plot');
                const emit = chart.emit;
                let hasFailed = false;
                chart.emit = function (name) {
                    const isFirst = name === 'plotly_autosize' && !hasFailed;
                    if (isFirst) { hasFailed = true; throw new Error('drawing failed'); }
                    const answer = emit.apply(this, arguments);
                    if (name === 'plotly_relayout') { Plotly.purge(chart); window.isEmptied = true; }
                    return answer;
                };
            }"""
        )
        page.set_viewport_size({"width": 1000, "height": 900})
        until(lambda: page.evaluate("window.isEmptied === true"), "the chart is emptied")
        page.evaluate("() => new Promise(done => window.setTimeout(done, 0))")
        assert [f for f in watch.found if "drawing failed" in f] == watch.found != []
        watch.found.clear()


def test_a_chart_of_very_many_rows_scrolls_in_a_box_of_its_own(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#timeline-graph .points path")
        page.evaluate(
            """() => dash_clientside.set_props('timeline-graph', {
                figure: { data: [{ y: [1, 2] }], layout: { height: 30000 } },
            })"""
        )
        until(lambda: page.locator("#timeline-box").bounding_box()["height"] == 30000, "the chart is drawn")
        height = page.locator("#timeline-figure").bounding_box()["height"]
        assert height == 1200
        assert watch.found == []
