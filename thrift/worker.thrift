/*
 * The service of a worker: notifications of appends, over Thrift's framed transport and binary
 * protocol. A process that appends notifies the worker that has claimed the partition. A
 * notification may be lost: a worker also polls by itself.
 */
namespace py hqueue.worker

/*
 * A batch that is in the log, as in its row there. Any client that reaches the port can send a
 * batch, so it counts only with a MAC by a key that lies in ZooKeeper
 * (hqueue/metadata/append_keys.py draws the bytes that the MAC covers). Without a valid MAC, the
 * batch only means that there is something to read.
 */
struct TBatch {
  1: i16 partition,
  2: i64 slot,
  3: binary header,
  /* The bodies of each topic. */
  4: map<binary, binary> cells,
  /* The ID of the key, and the MAC. */
  5: optional binary key,
  6: optional binary mac
}

service HQueueWorkerService {
  /*
   * Batches were appended to these partitions of a queue. Small batches may be included: a worker
   * that has read up to one need not read it from the log. A frame has at most 256 KiB.
   */
  oneway void appended(1: string queue, 2: list<i16> partitions, 3: list<TBatch> batches)
}
