"""The table of known messages: each is found in a line as it is printed, and no line has two causes by accident."""

from __future__ import annotations

import pytest

from backend.domain import known_messages
from backend.domain.known_messages import MessageCause

_FENCED = (
    "Unable to commit transaction (org.apache.flink.streaming.runtime.operators.sink.committables.CommitRequestImpl@1)"
    " because its producer is already fenced. This means that you either have a different producer with the same"
    " 'transactional.id' (this is unlikely with the 'KafkaSink' as all generated ids are unique and shouldn't be"
    " reused) or recovery took longer than 'transaction.timeout.ms' (900000ms). In both cases this most likely signals"
    " data loss, please consult the Flink documentation for more details."
)
_S3 = "com.amazonaws.services.s3.model.AmazonS3Exception: "
_RPC = "Caused by: org.apache.hadoop.ipc.RemoteException("
_KAFKA = "Caused by: org.apache.kafka.common.errors."

LINES = {
    "kafka-commit-fenced-reused": (
        "Unable to commit transaction (CommitRequestImpl@1) because its producer is already fenced. If this warning"
        " appears as part of the recovery of a checkpoint, it is expected in some cases (e.g., aborted checkpoints in"
        " previous attempt). If it's outside of recovery, this means that you either have a different sink with the"
        " same 'transactional.id' or recovery took longer than 'transaction.timeout.ms' (900000ms)."
    ),
    "kafka-commit-fenced": _FENCED,
    "kafka-commit-invalid-state": (
        "Unable to commit transaction (CommitRequestImpl@7) because it's in an invalid state. Most likely the"
        " transaction has been aborted for some reason. Please check the Kafka logs for more details."
    ),
    "flink-transaction-open-too-long": (
        "Transaction KafkaTransactionState [transactionalId=sink-1] has been open for 870000 ms. This is close to or"
        " even exceeding the transaction timeout of 900000 ms."
    ),
    "kafka-invalid-pid-mapping": (
        f"{_KAFKA}InvalidPidMappingException: The producer attempted to use a producer id which is not currently"
        " assigned to its transactional id."
    ),
    "kafka-unknown-producer-id": (
        "Unable to commit transaction (CommitRequestImpl@7) because of a bug in the Kafka broker (KAFKA-9310). Please"
        " upgrade to Kafka 2.5+. If you are running with concurrent checkpoints, you also may want to try without them."
    ),
    "kafka-invalid-txn-state": (
        f"{_KAFKA}InvalidTxnStateException: The producer attempted a transactional operation in an invalid state."
    ),
    "kafka-newer-producer": (
        f"{_KAFKA}ProducerFencedException: There is a newer producer with the same transactionalId which fences the"
        " current one."
    ),
    "kafka-fenced-old-epoch": (
        f"{_KAFKA}ProducerFencedException: Producer attempted an operation with an old epoch. Either there is a newer"
        " producer with the same transactionalId, or the producer's transaction has been expired by the broker."
    ),
    "kafka-transaction-aborted": (
        f"{_KAFKA}TransactionAbortedException: Failing batch since transaction was aborted"
    ),
    "kafka-transaction-timeout-above-maximum": (
        f"{_KAFKA}InvalidTxnTimeoutException: The transaction timeout is larger than the maximum value allowed by the"
        " broker (as configured by transaction.max.timeout.ms)."
    ),
    "kafka-concurrent-transactions": (
        f"{_KAFKA}ConcurrentTransactionsException: The producer attempted to update a transaction while another"
        " concurrent operation on the same transaction was ongoing."
    ),
    "kafka-transactional-id-authorization": (
        f"{_KAFKA}TransactionalIdAuthorizationException: Transactional Id authorization failed."
    ),
    "kafka-awaiting-init-producer-id": (
        f"{_KAFKA}TimeoutException: Timeout expired after 60000ms while awaiting InitProducerId"
    ),
    "kafka-batch-expired": (
        f"{_KAFKA}TimeoutException: Expiring 87 record(s) for orders-3:120000 ms has passed since batch creation"
    ),
    "kafka-out-of-order-sequence": (
        f"{_KAFKA}OutOfOrderSequenceException: The broker received an out of order sequence number."
    ),
    "kafka-record-too-large": (
        f"{_KAFKA}RecordTooLargeException: The message is 2097152 bytes when serialized which is larger than 1048576,"
        " which is the value of the max.request.size configuration."
    ),
    "kafka-topic-authorization": f"{_KAFKA}TopicAuthorizationException: Not authorized to access topics: [orders]",
    "kafka-no-metadata": f"{_KAFKA}TimeoutException: Topic orders not present in metadata after 60000 ms.",
    "kafka-not-enough-replicas": (
        f"{_KAFKA}NotEnoughReplicasException: Messages are rejected since there are fewer in-sync replicas than"
        " required."
    ),
    "kafka-offset-out-of-range": (
        "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Offsets out of range with no configured reset"
        " policy for partitions: {orders-0=12345}"
    ),
    "gcs-object-rate": (
        '"message" : "The object lake/chk/_metadata exceeded the rate limit for object mutation operations (create,'
        ' update, and delete). Please reduce your request rate. See https://cloud.google.com/storage/docs/gcs429."'
    ),
    "s3-slow-down": (
        f"{_S3}Please reduce your request rate. (Service: Amazon S3; Status Code: 503; Error Code: SlowDown; Request"
        " ID: 4WJ0; S3 Extended Request ID: a=; Proxy: null)"
    ),
    "azure-server-busy": (
        'Operation failed: "Operations per second is over the account limit.", 503, PUT, https://lake.dfs.core/x,'
        " ServerBusy"
    ),
    "s3-connection-pool": (
        "Caused by: org.apache.http.conn.ConnectionPoolTimeoutException: Timeout waiting for connection from pool"
    ),
    "s3-expired-token": (
        f"{_S3}The provided token has expired. (Service: Amazon S3; Status Code: 400; Error Code: ExpiredToken)"
    ),
    "s3-access-denied": f"{_S3}Access Denied (Service: Amazon S3; Status Code: 403; Error Code: AccessDenied)",
    "s3-no-credentials": (
        "org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException: : No AWS Credentials provided by"
        " DynamicTemporaryAWSCredentialsProvider TemporaryAWSCredentialsProvider"
    ),
    "s3-no-such-upload": (
        f"{_S3}The specified multipart upload does not exist. The upload ID may be invalid, or the upload may have been"
        " aborted or completed. (Service: Amazon S3; Status Code: 404; Error Code: NoSuchUpload)"
    ),
    "s3-no-such-key": (
        f"{_S3}The specified key does not exist. (Service: Amazon S3; Status Code: 404; Error Code: NoSuchKey)"
    ),
    "s3-clock-skewed": (
        f"{_S3}The difference between the request time and the current time is too large. (Service: Amazon S3; Status"
        " Code: 403; Error Code: RequestTimeTooSkewed)"
    ),
    "s3-read-cut-short": (
        "com.amazonaws.SdkClientException: Data read has a different length than the expected: dataLength=16384;"
        " expectedLength=65536; includeSkipped=true"
    ),
    "s3-request-timeout": (
        f"{_S3}Your socket connection to the server was not read from or written to within the timeout period. Idle"
        " connections will be closed. (Service: Amazon S3; Status Code: 400; Error Code: RequestTimeout)"
    ),
    "azure-not-authorized": (
        'Operation failed: "This request is not authorized to perform this operation using this permission.", 403, PUT,'
        " https://lake.dfs.core/x, AuthorizationPermissionMismatch"
    ),
    "hdfs-quota": (
        f"{_RPC}org.apache.hadoop.hdfs.protocol.DSQuotaExceededException): The DiskSpace quota of /flink is exceeded:"
        " quota = 1099511627776 B = 1 TB but diskspace consumed = 1099646697472 B = 1.00 TB"
    ),
    "hdfs-directory-items": (
        f"{_RPC}org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException): The directory"
        " item limit of /flink/checkpoints is exceeded: limit=1048576 items=1048576"
    ),
    "hdfs-no-datanodes": (
        f"{_RPC}java.io.IOException): File /flink/chk-7/a could only be written to 0 of the 1 minReplication nodes."
        " There are 3 datanode(s) running and 3 node(s) are excluded in this operation."
    ),
    "hdfs-standby": (
        f"{_RPC}org.apache.hadoop.ipc.StandbyException): Operation category WRITE is not supported in state standby."
    ),
    "hdfs-safe-mode": (
        f"{_RPC}org.apache.hadoop.hdfs.server.namenode.SafeModeException): Cannot create file/flink/chk-7/a. Name node"
        " is in safe mode."
    ),
    "hdfs-permission": (
        "org.apache.hadoop.security.AccessControlException: Permission denied: user=flink, access=WRITE,"
        ' inode="/checkpoints":hdfs:hdfs:drwxr-xr-x'
    ),
    "hdfs-token": (
        f"{_RPC}org.apache.hadoop.security.token.SecretManager$InvalidToken): token (token for flink:"
        " HDFS_DELEGATION_TOKEN owner=flink, renewer=yarn, sequenceNumber=42) can't be found in cache"
    ),
    "kerberos-no-ticket": (
        "javax.security.sasl.SaslException: GSS initiate failed [Caused by GSSException: No valid credentials provided"
        " (Mechanism level: Failed to find any Kerberos tgt)]"
    ),
    "hdfs-lease": (
        f"{_RPC}org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException): No lease on /flink/chk-7/a (inode 16501)"
    ),
    "hdfs-missing-block": (
        "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: blk_1073741825_1001"
        " file=/flink/chk-7/a"
    ),
    "filesystem-closed": "Caused by: java.io.IOException: Filesystem closed",
    "no-space-left": "Caused by: java.io.IOException: No space left on device",
    "disk-quota": "Caused by: java.io.IOException: Disk quota exceeded",
    "too-many-open-files": (
        "Caused by: org.rocksdb.RocksDBException: While open a file for random read: /data/db/000123.sst: Too many open"
        " files"
    ),
    "read-only-file-system": "java.io.FileNotFoundException: /data/tmp/a (Read-only file system)",
    "stale-file-handle": "Caused by: java.io.IOException: Stale file handle",
    "rocksdb-checksum": (
        "Caused by: org.rocksdb.RocksDBException: block checksum mismatch: stored = 2981909476, computed = 324654415 in"
        " /data/db/000042.sst offset 8497742 size 3971"
    ),
    "state-serializer-incompatible": (
        "Caused by: org.apache.flink.util.StateMigrationException: The new state serializer (PojoSerializer@1) must not"
        " be incompatible with the old state serializer (PojoSerializer@2)."
    ),
    "state-not-in-program": (
        "java.lang.IllegalStateException: Failed to rollback to checkpoint/savepoint hdfs:/sp. Cannot map"
        " checkpoint/savepoint state for operator feca28aff5a3958840bee985ee7de4d3 to the new program, because the"
        " operator is not available in the new program."
    ),
    "max-parallelism-mismatch": (
        "java.lang.IllegalStateException: Failed to rollback to checkpoint/savepoint Checkpoint 7. Max parallelism"
        " mismatch between checkpoint/savepoint state and new program. Cannot map operator a with max parallelism 128"
        " to new program with max parallelism 256."
    ),
    "checkpoint-not-found": (
        "java.io.FileNotFoundException: Cannot find meta data file '_metadata' in directory 'hdfs:/sp/chk-7'."
    ),
    "ha-handle-broken": (
        "org.apache.flink.util.FlinkException: Could not retrieve checkpoint 7 from state handle under"
        " /0000000000000000007. This indicates that the retrieved state handle is broken. Try cleaning the state handle"
        " store."
    ),
    "state-larger-than-memory-storage": (
        "java.io.IOException: Size of the state is larger than the maximum permitted memory-backed state. Size=5242954,"
        " maxSize=5242880. Consider using a different checkpoint storage, like the FileSystemCheckpointStorage."
    ),
    "rpc-message-too-large": (
        "Caused by: java.io.IOException: The rpc invocation size 15728640 exceeds the maximum akka framesize."
    ),
    "union-state-after-finish": (
        "The vertex Source: orders (id = cbc357ccb763df2852fee8c4fc7d55f2) has used UnionListState, but part of its"
        " tasks are FINISHED."
    ),
    "memory-heap": "java.lang.OutOfMemoryError: Java heap space",
    "memory-metaspace": "java.lang.OutOfMemoryError: Metaspace. The metaspace out-of-memory error has occurred.",
    "memory-direct": (
        "java.lang.OutOfMemoryError: Direct buffer memory. The direct out-of-memory error has occurred. This can mean"
        " two things"
    ),
    "memory-threads": "java.lang.OutOfMemoryError: unable to create new native thread",
    "container-memory": (
        "Diagnostics: Container [pid=44545,containerID=container_e01_1_1_01_000002] is running beyond physical memory"
        " limits. Current usage: 4.0 GB of 4 GB physical memory used"
    ),
    "network-buffers": (
        "java.io.IOException: Insufficient number of network buffers: required 65, but only 12 available. The total"
        " number of network buffers is currently set to 2048 of 32768 bytes each."
    ),
    "slots-missing": (
        "org.apache.flink.runtime.jobmanager.scheduler.NoResourceAvailableException: Slot request bulk is not"
        " fulfillable! Could not allocate the required slot within slot request timeout"
    ),
    "task-not-cancelled": (
        "org.apache.flink.util.FlinkRuntimeException: Task did not exit gracefully within 180 + seconds."
    ),
    "zookeeper-connection": (
        "org.apache.zookeeper.KeeperException$ConnectionLossException: KeeperErrorCode = ConnectionLoss for"
        " /flink/default/leader"
    ),
    "leadership-lost": "java.lang.Exception: Job leader for job id 8f5c0e2b lost leadership.",
    "operator-coordinator-failed": (
        "org.apache.flink.util.FlinkException: Global failure triggered by OperatorCoordinator for 'Source: orders'"
        " (operator cbc357ccb763df2852fee8c4fc7d55f2)."
    ),
    "heartbeat-timeout": (
        "java.util.concurrent.TimeoutException: Heartbeat of TaskManager with id container_e01_1_1_01_000002(host-a:"
        "8041) timed out."
    ),
    "task-manager-unreachable": (
        "org.apache.flink.runtime.jobmaster.JobMasterException: TaskManager with id 10.0.0.7:41245-1cd0a1 is no longer"
        " reachable."
    ),
    "remote-task-manager-lost": (
        "org.apache.flink.runtime.io.network.netty.exception.RemoteTransportException: Connection unexpectedly closed"
        " by remote task manager 'host-b/10.0.0.8:41245'. This might indicate that the remote task manager was lost."
    ),
    "partition-not-reachable": (
        "org.apache.flink.runtime.io.network.partition.consumer.PartitionConnectionException: Connection for partition"
        " 3f2a#0@5 not reachable."
    ),
    "yarn-container-released": "java.lang.Exception: Container released on a *lost* node",
    "iceberg-commit-unknown": (
        "org.apache.iceberg.exceptions.CommitStateUnknownException: Read timed out Cannot determine whether the commit"
        " was successful or not, the underlying data files may or may not be needed."
    ),
    "iceberg-commit-conflict": (
        "org.apache.iceberg.exceptions.CommitFailedException: Base metadata location 's3://a/1.json' is not same as the"
        " current table metadata location 's3://a/2.json' for db.orders"
    ),
    "iceberg-conflicting-files": (
        "org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can contain records matching"
        " true: [s3://a/b.parquet]"
    ),
    "paimon-conflict": (
        "java.lang.RuntimeException: File deletion conflicts detected! Give up committing."
    ),
    "paimon-snapshot-expired": (
        "java.io.FileNotFoundException: Snapshot file oss://t/snapshot/snapshot-12 does not exist. It might have been"
        " expired by other jobs operating on this table."
    ),
    "hudi-write-conflict": (
        "org.apache.hudi.exception.HoodieWriteConflictException: java.util.ConcurrentModificationException: Cannot"
        " resolve conflicts for overlapping writes"
    ),
    "hudi-instant-wait": (
        "org.apache.hudi.exception.HoodieException: Timeout(601000ms) while waiting for instant initialize"
    ),
    "delta-two-queries": (
        "[DELTA_CONCURRENT_TRANSACTION] ConcurrentTransactionException: This error occurs when multiple streaming"
        " queries are using the same checkpoint to write into this table."
    ),
    "delta-conflict": (
        "io.delta.exceptions.ConcurrentAppendException: Files were added to the root of the table by a concurrent"
        " update. Please try the operation again."
    ),
    "spark-two-queries": (
        "org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple"
        " streaming jobs detected for 12. Please make sure only one streaming job runs on a specific checkpoint"
        " location at a time."
    ),
    "spark-log-gap": (
        "java.lang.IllegalStateException: Batches (11) don't exist (startId: Some(10), endId: Some(12))"
    ),
    "spark-state-file-missing": (
        "java.lang.IllegalStateException: Error reading delta file file:/chk/state/0/3/7.delta of"
        " HDFSStateStoreProvider[id = (op=0,part=3)]: file:/chk/state/0/3/7.delta does not exist"
    ),
    "spark-state-schema": (
        "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing state key schema."
    ),
    "spark-sources-changed": (
        "java.lang.AssertionError: assertion failed: There are [1] sources in the checkpoint offsets and now there are"
        " [2] sources requested by the query. Cannot continue."
    ),
    "spark-kafka-data-lost": (
        "java.lang.IllegalStateException: Some data may have been lost because they are not available in Kafka any"
        " more; either the data was aged out by Kafka or the topic may have been deleted"
    ),
    "delta-log-behind": (
        "[DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE] If you never deleted it, it's likely your query is lagging"
        " behind."
    ),
    "spark-executor-lost": (
        "Job aborted due to stage failure: Task 3 in stage 7.0 failed 4 times: ExecutorLostFailure (executor 2 exited"
        " caused by one of the running tasks) Reason: Container killed by YARN for exceeding memory limits."
    ),
    "spark-result-size": (
        "Job aborted due to stage failure: Total size of serialized results of 12 tasks (1030.0 MiB) is bigger than"
        " spark.driver.maxResultSize (1024.0 MiB)"
    ),
    "kafka-commit-failed": (
        "org.apache.flink.util.FlinkRuntimeException: Committing one of transactions failed, logging first encountered"
        " failure"
    ),
    "state-backend-restore": (
        "org.apache.flink.util.FlinkException: Could not restore keyed state backend for"
        " KeyedProcessOperator_20ba6b65f97481d5570070de90e4e791_(1/4) from any of the 1 provided restore options."
    ),
    "store-write-failed": (
        "Caused by: java.io.IOException: Could not flush and close the file system output stream to"
        " s3p://a/chk/shared/1 in order to obtain the stream state handle"
    ),
    "checkpoint-failures-exceeded": (
        "org.apache.flink.util.FlinkRuntimeException: Exceeded checkpoint tolerable failure threshold. The latest"
        " checkpoint failed due to Checkpoint expired before completing."
    ),
}  # fmt: skip

# Other forms of the same messages: older versions, other clients.
OTHER_FORMS = (
    (
        "kafka-fenced-old-epoch",
        f"{_KAFKA}InvalidProducerEpochException: Producer attempted to produce with an old epoch.",
    ),
    (
        "kafka-awaiting-init-producer-id",
        f"{_KAFKA}TimeoutException: Timeout expired after 60000milliseconds while awaiting InitProducerId",
    ),
    ("kafka-commit-fenced", _FENCED.replace(" This means that you either", " If it's outside of recovery, this means")),
    ("kafka-commit-fenced", _FENCED.replace("commit transaction", "commit recovered transaction")),
    (
        "kafka-invalid-pid-mapping",
        "Unable to commit transaction (CommitRequestImpl@7) because the producer id mapping is invalid. This typically"
        " happens when the transaction has expired on the broker.",
    ),
    (
        "rpc-message-too-large",
        "java.io.IOException: The rpc invocation size 12582912 exceeds the maximum akka framesize.",
    ),
    (
        "s3-slow-down",
        f"{_S3}Slow Down (Service: Amazon S3; Status Code: 503; Error Code: 503 Slow Down; Request ID: 8)",
    ),
    (
        "s3-connection-pool",
        "Unable to execute HTTP request: Acquire operation took longer than the configured maximum time.",
    ),
    (
        "hdfs-no-datanodes",
        f"{_RPC}java.io.IOException): File /a could only be replicated to 0 nodes instead of minReplication (=1).",
    ),
    ("rpc-message-too-large", "akka.remote.OversizedPayloadException: Discarding oversized payload sent to Actor[a#1]"),
    ("memory-direct", "java.lang.OutOfMemoryError: Cannot reserve 65536 bytes of direct buffer memory (allocated: 1)"),
    ("memory-threads", "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory"),
    ("container-memory", "Container [pid=7] is running 1723304448B beyond the 'PHYSICAL' memory limit."),
    ("spark-log-gap", "java.lang.IllegalStateException: Batches (11, 12) don't  exist (startId: 10, endId: 13)"),
)


@pytest.mark.parametrize("message_id", [m.id for m in known_messages.messages()])
def test_each_message_is_found_in_a_line_as_it_is_printed(message_id: str):
    found = known_messages.explained(f"java.lang.Exception: it failed\n\tat a.b.C.d(C.java:7)\n{LINES[message_id]}\n")

    assert found is not None
    assert found.id == message_id


@pytest.mark.parametrize(("message_id", "line"), OTHER_FORMS)
def test_other_forms_of_a_message_are_found_too(message_id: str, line: str):
    found = known_messages.explained(line)

    assert found is not None
    assert found.id == message_id


def test_there_are_at_least_sixty_messages_and_each_has_one_line_and_says_all_that_it_must():
    table = known_messages.messages()

    assert len(table) >= 60
    assert [m.id for m in table] == list(LINES)
    for m in table:
        assert all((m.means, m.cure, m.versions, m.source)), m.id
        # They are put into a sentence, after a colon.
        assert not f"{m.means}{m.cure}".endswith("."), m.id
        assert not m.means.endswith("."), m.id


def test_no_line_matches_two_messages_of_different_causes_unless_their_order_is_stated():
    table = known_messages.messages()
    for line in [*LINES.values(), *(line for _, line in OTHER_FORMS)]:
        first, *others = [m for m in table if m.pattern.search(line)]
        for other in others:
            assert first.cause is other.cause or other.id in first.before, line


def test_an_order_that_is_stated_is_the_order_of_the_table():
    order = [m.id for m in known_messages.messages()]
    for m in known_messages.messages():
        assert all(order.index(m.id) < order.index(other) for other in m.before)


def test_the_specific_message_explains_an_exception_that_has_a_general_one_too():
    trace = "\n".join(
        [
            "java.lang.Exception: Could not materialize checkpoint 7 for operator map (1/4)#0.",
            LINES["store-write-failed"],
            f"Caused by: {LINES['s3-slow-down']}",
        ]
    )

    found = known_messages.explained(trace)

    assert found is not None
    assert found.cause is MessageCause.STORE_THROTTLED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.lang.RuntimeException: expected failure of the test",
        "java.lang.NullPointerException\n\tat com.example.Map.map(Map.java:12)",
        "java.lang.Exception: Could not perform checkpoint 7 for operator sink (1/4)#0.",
        "java.lang.IllegalStateException: the transaction of the customer is not valid",
    ],
)
def test_an_exception_of_the_job_s_own_code_is_not_explained(text: str):
    assert known_messages.explained(text) is None


def test_the_timeout_of_transactions_is_read_from_the_messages_that_name_it():
    assert known_messages.transaction_timeout_ms(LINES["kafka-commit-fenced"]) == 900_000
    assert known_messages.transaction_timeout_ms(LINES["flink-transaction-open-too-long"]) == 900_000
    assert known_messages.transaction_timeout_ms(LINES["kafka-invalid-txn-state"]) is None


def test_a_very_long_line_is_searched_only_at_its_beginning():
    assert known_messages.explained("x" * 5_000 + LINES["kafka-invalid-txn-state"]) is None
