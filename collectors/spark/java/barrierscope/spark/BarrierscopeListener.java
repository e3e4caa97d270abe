package barrierscope.spark;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.ref.WeakReference;
import java.net.HttpRetryException;
import java.net.HttpURLConnection;
import java.net.MalformedURLException;
import java.net.Proxy;
import java.net.SocketTimeoutException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.ThreadLocalRandom;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Reports each micro-batch of a Structured Streaming job to Barrierscope, without a change of the job.
 *
 * <pre>
 * spark-submit --jars barrierscope-spark-listener.jar \
 *   --conf spark.sql.streaming.streamingQueryListeners=barrierscope.spark.BarrierscopeListener \
 *   --conf spark.barrierscope.url=http://barrierscope:8050 ...
 * </pre>
 *
 * <p>It sends the same events as {@code collectors/spark/listener.py}, the listener in Python, and keeps its promises.
 * No call by Spark waits for the network or gets an exception from this class. The queue of events is limited in number
 * and in bytes. If it is full, the oldest events are dropped, and their number is sent and logged. The token is sent only
 * to the configured address and is never logged. Events that were not acknowledged are sent again.
 *
 * <p>Spark makes one listener for each session. All listeners of a driver share one queue and one thread, and an event
 * that reaches several of them is sent once. The bytecode is that of Java 8, and only methods are called that Spark 3.4 to
 * 4.3 have under the same signature.
 */
public final class BarrierscopeListener extends StreamingQueryListener {
  private static final long serialVersionUID = 1L;
  private static final Logger LOG = LoggerFactory.getLogger("barrierscope.listener");
  private static final int EXCEPTION_MAX = 8_000;
  private static final int NAME_MAX = 1_000;
  // All listeners with the same settings share a sender. A driver has one, unless it starts a second SparkContext.
  private static final Map<List<Object>, Sender> SENDERS = new HashMap<>();

  private final transient Sender sender;

  /**
   * Spark calls this for each session. It never throws, since Spark would refuse to start any query.
   *
   * @param conf the settings of the application; those that begin with {@code spark.barrierscope.} are read
   */
  public BarrierscopeListener(SparkConf conf) {
    Sender found = null;
    try {
      found = senderOf(conf);
    } catch (RuntimeException | LinkageError error) {
      LOG.error("Barrierscope's listener could not start ({}): the queries continue", name(error));
    }
    sender = found;
  }

  /** Returns the number of events that the server acknowledged. */
  public long sentCount() {
    return sender == null ? 0 : sender.sentCount();
  }

  /** Returns the number of events that were dropped and will never be sent. */
  public long droppedCount() {
    return sender == null ? 0 : sender.droppedCount();
  }

  /** Waits until all events so far are sent, at most for this time, and returns whether all were sent. */
  public boolean flush(long timeoutMs) throws InterruptedException {
    return sender == null || sender.flush(timeoutMs);
  }

  @Override
  public void onQueryStarted(QueryStartedEvent event) {
    guarded(() -> sender.started(text(event.id()), text(event.runId()), cut(event.name(), NAME_MAX), event.timestamp()));
  }

  @Override
  public void onQueryProgress(QueryProgressEvent event) {
    guarded(() -> sender.progress(event.progress()));
  }

  /** Spark calls this since 3.5. */
  @Override
  public void onQueryIdle(QueryIdleEvent event) {
    guarded(() -> sender.idle(text(event.id()), text(event.runId()), event.timestamp()));
  }

  @Override
  public void onQueryTerminated(QueryTerminatedEvent event) {
    guarded(() -> {
      String exception = cut(textOf(event.exception()), EXCEPTION_MAX);
      sender.terminated(text(event.id()), text(event.runId()), exception, cut(errorClass(event), NAME_MAX));
    });
  }

  private void guarded(Runnable take) {
    if (sender == null) {
      return;
    }
    try {
      take.run();
    } catch (RuntimeException | LinkageError error) {
      // The boundary to Spark: no exception of this class may reach its bus.
      sender.drop();
      LOG.debug("an event of Spark could not be read: {}", name(error));
    }
  }

  private static Sender senderOf(SparkConf conf) {
    Settings settings = new Settings(conf);
    synchronized (SENDERS) {
      Sender known = SENDERS.get(settings.identity);
      if (known == null) {
        known = new Sender(settings);
        SENDERS.put(settings.identity, known);
        Runtime.getRuntime().addShutdownHook(new Thread(known::end, "barrierscope-listener-end"));
      }
      return known;
    }
  }

  private static String errorClass(QueryTerminatedEvent event) {
    try {
      return textOf(event.errorClassOnException());
    } catch (NoSuchMethodError error) {
      // Spark 3.4 does not report it.
      return null;
    }
  }

  private static String textOf(Option<?> option) {
    return option != null && option.isDefined() ? text(option.get()) : null;
  }

  private static String text(Object value) {
    return value == null ? null : value.toString();
  }

  private static String cut(String text, int most) {
    return text == null || text.length() <= most ? text : text.substring(0, most);
  }

  private static String name(Throwable error) {
    // A message may quote a setting, such as the token.
    return error.getClass().getSimpleName();
  }

  /** The settings of the listener. What is not valid is logged, and its default is used. */
  private static final class Settings {
    private static final String ROOT = "spark.barrierscope.";
    private static final String DEFAULT_TOKEN_VARIABLE = "BARRIERSCOPE_API_TOKEN";
    private static final int DEPLOYMENT_MAX = 200;

    final URL url;
    final boolean isLoopback;
    final String tokenFile;
    final String tokenVariable;
    final String deployment;
    final Long triggerIntervalMs;
    final int queueSize;
    final int timeoutMs;
    final List<Object> identity;

    Settings(SparkConf conf) {
      String address = conf.get(ROOT + "url", "").trim();
      url = urlOf(address);
      isLoopback = url != null && isLoopback(url.getHost());
      tokenFile = conf.get(ROOT + "token.file", "").trim();
      tokenVariable = conf.get(ROOT + "token.env", DEFAULT_TOKEN_VARIABLE).trim();
      if (conf.contains(ROOT + "token")) {
        LOG.error(
            "spark.barrierscope.token is not read, because Spark writes settings to its event log: name a file in"
                + " spark.barrierscope.token.file, or an environment variable in spark.barrierscope.token.env");
      }
      String given = conf.get(ROOT + "deployment", conf.get("spark.app.name", "")).replaceAll("\\p{Cntrl}", " ").trim();
      deployment = given.isEmpty() ? "spark" : cut(given, DEPLOYMENT_MAX);
      long trigger = number(conf, "triggerIntervalMs", 0, 0, 366L * 24 * 3600 * 1000);
      triggerIntervalMs = trigger == 0 ? null : trigger;
      queueSize = (int) number(conf, "queueSize", 1_000, 1, 1_000_000);
      timeoutMs = (int) number(conf, "timeoutMs", 5_000, 1, 600_000);
      identity =
          Arrays.asList(address, tokenFile, tokenVariable, deployment, triggerIntervalMs, queueSize, timeoutMs);
      if (url != null && url.getProtocol().equals("http") && !isLoopback && (!tokenFile.isEmpty() || token() != null)) {
        LOG.warn("the token goes to {} unencrypted: use https", url.getHost());
      }
    }

    /** Returns the token, or null if there is none. The file is read each time, because tokens are replaced. */
    String token() {
      String token = System.getenv(tokenVariable.isEmpty() ? DEFAULT_TOKEN_VARIABLE : tokenVariable);
      if (!tokenFile.isEmpty()) {
        try {
          token = new String(Files.readAllBytes(Paths.get(tokenFile)), StandardCharsets.UTF_8);
        } catch (IOException | RuntimeException error) {
          throw new IllegalStateException("the file of the token cannot be read");
        }
      }
      token = token == null ? "" : token.trim();
      for (int i = 0; i < token.length(); i++) {
        if (token.charAt(i) <= ' ' || token.charAt(i) > '~') {
          throw new IllegalStateException("the token has a character that a header cannot have");
        }
      }
      return token.isEmpty() ? null : token;
    }

    private static long number(SparkConf conf, String key, long otherwise, long least, long most) {
      String given = conf.get(ROOT + key, "").trim();
      if (given.isEmpty()) {
        return otherwise;
      }
      try {
        long value = Long.parseLong(given);
        if (value >= least && value <= most) {
          return value;
        }
      } catch (NumberFormatException error) {
        // The same as a number that is too large.
      }
      LOG.error("{}{} is not a number from {} to {}: {} is used", ROOT, key, least, most, otherwise);
      return otherwise;
    }

    private static URL urlOf(String address) {
      try {
        URL url = new URL(address);
        boolean isWeb = url.getProtocol().equals("http") || url.getProtocol().equals("https");
        boolean isPlain = url.getUserInfo() == null && url.getQuery() == null && url.getRef() == null;
        if (isWeb && isPlain && !url.getHost().isEmpty()) {
          String path = url.getPath().replaceAll("/+$", "");
          return new URL(url.getProtocol(), url.getHost(), url.getPort(), path + "/api/v1/ingest/spark");
        }
      } catch (MalformedURLException error) {
        // The same as a URL of another kind. The message quotes the address, which may have a password.
      }
      LOG.error("spark.barrierscope.url must be http:// or https:// with a host: nothing is sent, the queries continue");
      return null;
    }

    private static boolean isLoopback(String host) {
      return host.equals("127.0.0.1") || host.equals("localhost") || host.equals("[::1]") || host.equals("::1");
    }
  }

  /** What is known of a run of a query while it runs. */
  private static final class Run {
    final String id;
    final String runId;
    final String name;
    Object lastBatchId;
    String lastBatchEndedAt;
    String lastSeen = "";
    // Spark replaces this object if the application is stopped and another one starts in the same JVM.
    private final WeakReference<SparkEnv> environment = new WeakReference<>(environment());

    Run(String id, String runId, String name) {
      this.id = id;
      this.runId = runId;
      this.name = name;
    }

    /** Returns whether the application was stopped in which the query ran. Spark then does not report its end. */
    boolean isLeft() {
      SparkEnv before = environment.get();
      return before != null && before != environment();
    }

    private static SparkEnv environment() {
      try {
        return SparkEnv.get();
      } catch (LinkageError error) {
        return null;
      }
    }
  }

  /** An event in the queue: JSON without its closing brace, and the report of Spark that is shortened before it is sent. */
  private static final class Event {
    final String json;
    final String progress;

    Event(String json, String progress) {
      this.json = json;
      this.progress = progress;
    }

    int size() {
      return json.length() + (progress == null ? 0 : progress.length()) + 200;
    }

    /** Returns the JSON to send, or null if Spark's report cannot be read. */
    String encoded() {
      if (progress == null) {
        return json + "}";
      }
      try {
        return json + ",\"progress\":" + Progress.shortened(progress) + "}";
      } catch (RuntimeException error) {
        return null;
      }
    }
  }

  /** The queue of events, and the thread that sends them. */
  private static final class Sender {
    // The server accepts at most 256 KiB per request.
    private static final int BODY_MAX_BYTES = 200_000;
    private static final int QUEUE_MAX_BYTES = 8_000_000;
    private static final int EVENTS_AT_ONCE = 200;
    private static final int ENDED_KEPT = 1_000;
    private static final long ALIVE_EVERY_MS = 10_000;
    private static final long BACK_OFF_FIRST_MS = 1_000;
    private static final long BACK_OFF_MOST_MS = 60_000;
    private static final long LOG_EVERY_MS = 60_000;
    private static final long FLUSH_MS = 3_000;
    private static final long LAST_EVENTS_MS = 1_000;

    private final Settings settings;
    private final String head;
    // This lock guards all fields. It is never held during a request.
    private final Object lock = new Object();
    private final Map<String, Run> runs = new LinkedHashMap<>();
    private final Map<String, Boolean> ended =
        new LinkedHashMap<String, Boolean>() {
          private static final long serialVersionUID = 1L;

          @Override
          protected boolean removeEldestEntry(Map.Entry<String, Boolean> eldest) {
            return size() > ENDED_KEPT;
          }
        };
    private final ArrayDeque<Event> queue = new ArrayDeque<>();
    private Thread thread;
    private Timer limits;
    private int queuedBytes;
    private int sending;
    private int atOnce = EVENTS_AT_ONCE;
    private boolean isClosing;
    private long giveUpAtMs = Long.MAX_VALUE;
    private long aliveDueMs;
    private int failedCount;
    private long loggedAtMs = Long.MIN_VALUE;
    private long sentCount;
    private long droppedCount;

    Sender(Settings settings) {
      this.settings = settings;
      head =
          "{\"deployment\":" + quoted(settings.deployment)
              + ",\"spark_version\":" + quoted(sparkVersion())
              + ",\"trigger_interval_ms\":" + settings.triggerIntervalMs;
    }

    void started(String id, String runId, String name, String timestamp) {
      synchronized (lock) {
        if (runs.containsKey(runId) || ended.containsKey(runId)) {
          return;
        }
        runs.put(runId, new Run(id, runId, name));
        put(new Event(opened("started", id, runId, name) + ",\"timestamp\":" + quoted(timestamp), null));
      }
    }

    void progress(StreamingQueryProgress progress) {
      String runId = text(progress.runId());
      // Before Spark 4.0 the JSON has no duration. If it has one, that value replaces this one when it is read.
      String json = "{\"batchDuration\":" + progress.batchDuration() + "," + progress.json().substring(1);
      synchronized (lock) {
        Run run = runs.get(runId);
        if (run == null) {
          run = new Run(text(progress.id()), runId, cut(progress.name(), NAME_MAX));
          runs.put(runId, run);
        }
        String seen = "progress " + progress.batchId() + " " + progress.timestamp();
        if (seen.equals(run.lastSeen)) {
          return;
        }
        run.lastSeen = seen;
        run.lastBatchId = progress.batchId();
        run.lastBatchEndedAt = later(progress.timestamp(), progress.batchDuration());
        put(new Event("{\"event\":\"progress\",\"seen_at\":" + now(), json));
      }
    }

    void idle(String id, String runId, String timestamp) {
      synchronized (lock) {
        Run run = runs.get(runId);
        String seen = "idle " + timestamp;
        if (run != null && seen.equals(run.lastSeen)) {
          return;
        }
        if (run != null) {
          run.lastSeen = seen;
        }
        String name = run == null ? null : run.name;
        put(new Event(opened("idle", id, runId, name) + ",\"timestamp\":" + quoted(timestamp), null));
      }
    }

    void terminated(String id, String runId, String exception, String errorClass) {
      synchronized (lock) {
        if (ended.put(runId, true) != null) {
          return;
        }
        Run run = runs.remove(runId);
        put(new Event(
            opened("terminated", id, runId, run == null ? null : run.name)
                + ",\"exception\":" + quoted(exception)
                + ",\"error_class\":" + quoted(errorClass)
                + ",\"last_batch_id\":" + (run == null ? null : run.lastBatchId)
                + ",\"last_batch_ended_at\":" + quoted(run == null ? null : run.lastBatchEndedAt),
            null));
      }
    }

    void drop() {
      synchronized (lock) {
        droppedCount++;
      }
    }

    long sentCount() {
      synchronized (lock) {
        return sentCount;
      }
    }

    long droppedCount() {
      synchronized (lock) {
        return droppedCount;
      }
    }

    boolean flush(long timeoutMs) throws InterruptedException {
      long endMs = clockMs() + timeoutMs;
      synchronized (lock) {
        while (!queue.isEmpty() || sending > 0) {
          long leftMs = endMs - clockMs();
          if (leftMs <= 0) {
            return false;
          }
          lock.wait(leftMs);
        }
        return true;
      }
    }

    /** Sends what is left when the driver ends. */
    void end() {
      try {
        long endMs = clockMs() + LAST_EVENTS_MS;
        Thread last;
        synchronized (lock) {
          // Spark stops its queries at the same time as this runs, and reports their end.
          for (long leftMs = LAST_EVENTS_MS; !runs.isEmpty() && leftMs > 0; leftMs = endMs - clockMs()) {
            lock.wait(leftMs);
          }
          isClosing = true;
          giveUpAtMs = clockMs() + FLUSH_MS;
          lock.notifyAll();
          last = thread;
        }
        if (last != null) {
          last.join(FLUSH_MS);
        }
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
      }
    }

    /** Queues an event. If the queue is full, the oldest event is dropped. The caller holds the lock. */
    private void put(Event event) {
      if (isClosing || settings.url == null) {
        droppedCount++;
        return;
      }
      queue.addLast(event);
      queuedBytes += event.size();
      shrink();
      if (thread == null) {
        aliveDueMs = clockMs() + ALIVE_EVERY_MS;
        limits = new Timer("barrierscope-listener-limits", true);
        thread = new Thread(this::run, "barrierscope-listener");
        thread.setDaemon(true);
        thread.start();
      }
      lock.notifyAll();
    }

    private void shrink() {
      while (queue.size() > settings.queueSize || queuedBytes > QUEUE_MAX_BYTES) {
        queuedBytes -= queue.removeFirst().size();
        droppedCount++;
      }
    }

    private void run() {
      boolean isOpen = true;
      while (isOpen) {
        try {
          isOpen = turn();
        } catch (InterruptedException | RuntimeException | LinkageError error) {
          // The top of the thread: it must survive unexpected errors.
          LOG.warn("Barrierscope's listener had an unexpected error: {}", name(error));
          synchronized (lock) {
            droppedCount += sending;
            sending = 0;
            failedCount++;
          }
          backOff();
        }
      }
    }

    /** Waits for events and sends them once. Returns false once this is closing and has nothing more to send. */
    private boolean turn() throws InterruptedException {
      List<Event> taken;
      List<String> alive;
      synchronized (lock) {
        while (queue.isEmpty() && !isClosing && aliveDueMs > clockMs()) {
          lock.wait(aliveDueMs - clockMs() + 1);
        }
        if (isClosing && (queue.isEmpty() || clockMs() >= giveUpAtMs)) {
          droppedCount += queue.size();
          queue.clear();
          lock.notifyAll();
          return false;
        }
        taken = take();
        sending = taken.size();
        // These events are also sent while another query sends many events, because a query may be in a batch that
        // takes minutes.
        alive = clockMs() >= aliveDueMs ? alive() : Collections.<String>emptyList();
      }
      if (!taken.isEmpty()) {
        send(taken, alive);
      } else if (!alive.isEmpty()) {
        post(alive);
      }
      if (!alive.isEmpty() || taken.isEmpty()) {
        aliveDueMs = clockMs() + ALIVE_EVERY_MS;
      }
      return true;
    }

    private List<Event> take() {
      List<Event> taken = new ArrayList<>();
      int total = 0;
      while (!queue.isEmpty()
          && taken.size() < atOnce
          && (taken.isEmpty() || total + queue.peekFirst().size() < BODY_MAX_BYTES)) {
        Event event = queue.removeFirst();
        total += event.size();
        taken.add(event);
      }
      queuedBytes -= total;
      return taken;
    }

    /** Returns one event for each running query. They show that the driver is alive, even if a batch takes minutes. */
    private List<String> alive() {
      for (Run run : new ArrayList<>(runs.values())) {
        if (run.isLeft()) {
          terminated(run.id, run.runId, null, null);
        }
      }
      List<String> events = new ArrayList<>();
      for (Run run : runs.values()) {
        events.add(opened("alive", run.id, run.runId, run.name) + "}");
      }
      return events;
    }

    private void send(List<Event> taken, List<String> alive) {
      List<String> events = new ArrayList<>();
      for (Event event : taken) {
        String encoded = event.encoded();
        if (encoded != null) {
          events.add(encoded);
        }
      }
      int readable = events.size();
      events.addAll(alive);
      int status = readable == 0 ? 200 : post(events);
      boolean isTaken = status >= 200 && status < 300;
      boolean isRefused = status == 400 || status == 409 || status == 413 || status == 422;
      synchronized (lock) {
        sending = 0;
        if (isTaken) {
          sentCount += readable;
          droppedCount += taken.size() - readable;
          atOnce = Math.min(EVENTS_AT_ONCE, 2 * atOnce);
        } else if (isRefused && taken.size() > 1 && status != 409) {
          // At least one of the events is invalid. Send them one by one, so that only invalid events are dropped.
          atOnce = 1;
          giveBack(taken);
        } else if (isRefused) {
          droppedCount += taken.size();
        } else {
          giveBack(taken);
        }
        lock.notifyAll();
      }
      if (!isTaken && !isRefused) {
        backOff();
      }
    }

    private void giveBack(List<Event> taken) {
      for (int i = taken.size() - 1; i >= 0; i--) {
        queue.addFirst(taken.get(i));
        queuedBytes += taken.get(i).size();
      }
      shrink();
    }

    /** Sends events. Returns the status of HTTP, or 0 if the server did not answer. */
    private int post(List<String> events) {
      String body = head + ",\"sent_at\":" + now() + ",\"dropped_count\":" + droppedCount()
          + ",\"events\":[" + String.join(",", events) + "]}";
      int status;
      try {
        status = exchange(body.getBytes(StandardCharsets.UTF_8));
      } catch (HttpRetryException error) {
        status = error.responseCode();
      } catch (IllegalStateException error) {
        // Of the settings: its message is ours.
        refused(error.getMessage());
        return 0;
      } catch (IOException | RuntimeException error) {
        refused(name(error));
        return 0;
      }
      if (status < 100) {
        refused("no answer of HTTP");
        return 0;
      }
      if (status < 200 || status >= 300) {
        refused("HTTP " + status);
        return status;
      }
      if (failedCount > 0) {
        LOG.warn("Barrierscope answers again; {} events were dropped so far", droppedCount());
      }
      failedCount = 0;
      return status;
    }

    private int exchange(byte[] body) throws IOException {
      HttpURLConnection connection =
          (HttpURLConnection)
              (settings.isLoopback ? settings.url.openConnection(Proxy.NO_PROXY) : settings.url.openConnection());
      int timeoutMs = (int) Math.max(100, Math.min(settings.timeoutMs, leftMs()));
      connection.setConnectTimeout(timeoutMs);
      connection.setReadTimeout(timeoutMs);
      connection.setRequestMethod("POST");
      connection.setDoOutput(true);
      connection.setUseCaches(false);
      // A redirect or a request for other credentials is refused, so that the token goes to the configured address only,
      // and nothing else does.
      connection.setInstanceFollowRedirects(false);
      connection.setFixedLengthStreamingMode(body.length);
      connection.setRequestProperty("Content-Type", "application/json");
      connection.setRequestProperty("User-Agent", "barrierscope-listener");
      connection.setRequestProperty("Connection", "close");
      String token = settings.token();
      if (token != null) {
        connection.setRequestProperty("Authorization", "Bearer " + token);
      }
      // The timeouts of the connection are those of one read. A server that sends its headers byte by byte would hold
      // the thread forever.
      TimerTask limit =
          new TimerTask() {
            @Override
            public void run() {
              connection.disconnect();
            }
          };
      limits.schedule(limit, 2L * timeoutMs);
      try {
        try (OutputStream out = connection.getOutputStream()) {
          out.write(body);
        }
        // The status is all that counts, so the body of the answer is not read.
        int status = connection.getResponseCode();
        if (!limit.cancel()) {
          // The limit closed the connection. Java takes the headers so far for all of them.
          throw new SocketTimeoutException();
        }
        return status;
      } finally {
        limit.cancel();
        connection.disconnect();
      }
    }

    private long leftMs() {
      synchronized (lock) {
        return giveUpAtMs == Long.MAX_VALUE ? Long.MAX_VALUE : giveUpAtMs - clockMs();
      }
    }

    /** Logs that the server did not accept events: at the first failure, then at most once a minute. */
    private void refused(String reason) {
      failedCount++;
      long nowMs = clockMs();
      if (loggedAtMs == Long.MIN_VALUE || nowMs - loggedAtMs >= LOG_EVERY_MS) {
        loggedAtMs = nowMs;
        int waiting;
        synchronized (lock) {
          waiting = queue.size() + sending;
        }
        LOG.warn(
            "Barrierscope did not take events ({}): {} wait, {} were dropped; the queries continue",
            reason, waiting, droppedCount());
      }
    }

    private void backOff() {
      long pauseMs = BACK_OFF_FIRST_MS << Math.min(10, Math.max(0, failedCount - 1));
      // The pause is random, so that many drivers do not retry at the same time.
      double random = ThreadLocalRandom.current().nextDouble(0.7, 1.3);
      long endMs = clockMs() + (long) (Math.min(BACK_OFF_MOST_MS, pauseMs) * random);
      synchronized (lock) {
        try {
          for (long leftMs = endMs - clockMs(); !isClosing && leftMs > 0; leftMs = endMs - clockMs()) {
            lock.wait(leftMs);
          }
        } catch (InterruptedException error) {
          LOG.debug("the pause was interrupted");
        }
        if (isClosing) {
          // The driver ends while the server is unreachable: make no further attempt.
          giveUpAtMs = 0;
        }
      }
    }

    private static long clockMs() {
      return System.nanoTime() / 1_000_000;
    }

    private static String sparkVersion() {
      try {
        return org.apache.spark.package$.MODULE$.SPARK_VERSION();
      } catch (LinkageError error) {
        return null;
      }
    }

    private static String opened(String event, String id, String runId, String name) {
      return "{\"event\":\"" + event + "\",\"seen_at\":" + now()
          + ",\"id\":" + quoted(id) + ",\"run_id\":" + quoted(runId) + ",\"name\":" + quoted(name);
    }

    private static String now() {
      return quoted(Instant.now().truncatedTo(ChronoUnit.MICROS).toString());
    }

    private static String later(String timestamp, long durationMs) {
      try {
        return Instant.parse(timestamp).plusMillis(durationMs).toString();
      } catch (RuntimeException error) {
        return null;
      }
    }
  }

  /**
   * Spark's report on a batch with only the fields that leave the driver. The metrics that the job observes, and those of
   * the sink, are not sent. Values are copied as Spark wrote them.
   */
  private static final class Progress {
    private static final int MAX_CHARACTERS = 100_000;
    private static final String[] KEYS = {
      "id", "runId", "name", "timestamp", "batchId", "batchDuration", "durationMs", "numInputRows",
      "processedRowsPerSecond"
    };
    private static final String[] OPERATOR_KEYS = {
      "operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark", "commitTimeMs",
      "memoryUsedBytes", "numStateStoreInstances", "customMetrics"
    };
    private static final String[] SOURCE_KEYS = {
      "description", "startOffset", "endOffset", "latestOffset", "numInputRows"
    };
    private static final String[] SINK_KEYS = {"description"};
    private static final List<String> OFFSET_KEYS = Arrays.asList("startOffset", "endOffset", "latestOffset");

    static String shortened(String json) {
      Map<String, String> found = new Json(json).members();
      String all = shortened(found, false);
      // If it is too large, its offsets are left out.
      return all.length() > MAX_CHARACTERS ? shortened(found, true) : all;
    }

    private static String shortened(Map<String, String> found, boolean isWithoutOffsets) {
      Map<String, String> kept = picked(found, KEYS);
      String watermark = objectOf(found.get("eventTime")).get("watermark");
      if (watermark != null && !watermark.equals("null")) {
        kept.put("eventTime", "{\"watermark\":" + watermark + "}");
      }
      List<String> operators = new ArrayList<>();
      for (String operator : arrayOf(found.get("stateOperators"))) {
        operators.add(written(picked(new Json(operator).members(), OPERATOR_KEYS)));
      }
      kept.put("stateOperators", "[" + String.join(",", operators) + "]");
      List<String> sources = new ArrayList<>();
      for (String source : arrayOf(found.get("sources"))) {
        Map<String, String> values = picked(new Json(source).members(), SOURCE_KEYS);
        if (isWithoutOffsets) {
          OFFSET_KEYS.forEach(key -> values.put(key, "null"));
        }
        sources.add(written(values));
      }
      kept.put("sources", "[" + String.join(",", sources) + "]");
      String sink = found.get("sink");
      if (sink != null && sink.startsWith("{")) {
        kept.put("sink", written(picked(new Json(sink).members(), SINK_KEYS)));
      }
      return written(kept);
    }

    private static Map<String, String> objectOf(String json) {
      return json == null || !json.startsWith("{") ? Collections.<String, String>emptyMap() : new Json(json).members();
    }

    private static List<String> arrayOf(String json) {
      return json == null || json.equals("null") ? Collections.<String>emptyList() : new Json(json).elements();
    }

    private static Map<String, String> picked(Map<String, String> found, String[] keys) {
      Map<String, String> kept = new LinkedHashMap<>();
      for (String key : keys) {
        if (found.containsKey(key)) {
          kept.put(key, found.get(key));
        }
      }
      return kept;
    }

    private static String written(Map<String, String> values) {
      StringBuilder out = new StringBuilder("{");
      for (Map.Entry<String, String> entry : values.entrySet()) {
        out.append(out.length() > 1 ? "," : "").append('"').append(entry.getKey()).append("\":").append(entry.getValue());
      }
      return out.append('}').toString();
    }
  }

  /** Splits the JSON of one object or array into the JSON of its parts. It does not recurse. */
  private static final class Json {
    private final String text;
    private int at;

    Json(String text) {
      this.text = text;
    }

    /** Returns the JSON of each value by its key, which has no escapes in Spark's reports. */
    Map<String, String> members() {
      Map<String, String> found = new LinkedHashMap<>();
      expect('{');
      while (!isAt('}')) {
        if (!found.isEmpty()) {
          expect(',');
          skipSpace();
        }
        String key = value();
        expect(':');
        found.put(key.substring(1, key.length() - 1), value());
      }
      return found;
    }

    /** Returns the JSON of each element. */
    List<String> elements() {
      List<String> found = new ArrayList<>();
      expect('[');
      while (!isAt(']')) {
        if (!found.isEmpty()) {
          expect(',');
        }
        found.add(value());
      }
      return found;
    }

    private String value() {
      skipSpace();
      int start = at;
      int depth = 0;
      do {
        char c = text.charAt(at);
        if (c == '"') {
          skipString();
        } else if (c == '{' || c == '[') {
          depth++;
          at++;
        } else if (c == '}' || c == ']') {
          depth--;
          at++;
        } else if (depth > 0) {
          at++;
        } else {
          skipScalar();
        }
      } while (depth > 0);
      if (depth < 0 || at == start) {
        throw new IllegalArgumentException("a value is missing");
      }
      return text.substring(start, at);
    }

    private void skipString() {
      for (at++; text.charAt(at) != '"'; at++) {
        if (text.charAt(at) == '\\') {
          at++;
        }
      }
      at++;
    }

    private void skipScalar() {
      while (at < text.length() && ",:]} \t\r\n".indexOf(text.charAt(at)) < 0) {
        at++;
      }
    }

    private void skipSpace() {
      while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
        at++;
      }
    }

    private boolean isAt(char wanted) {
      skipSpace();
      return text.charAt(at) == wanted;
    }

    private void expect(char wanted) {
      if (!isAt(wanted)) {
        throw new IllegalArgumentException("JSON of another form");
      }
      at++;
    }
  }

  /** Returns a text as JSON, or {@code null}. */
  private static String quoted(String text) {
    if (text == null) {
      return "null";
    }
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
