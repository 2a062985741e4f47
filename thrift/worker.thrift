/*
 * What a worker serves: notifications of appends, over Thrift's framed transport and binary
 * protocol. A process that appends notifies the worker that has claimed the partition, and does
 * not care what becomes of it: a worker looks by itself as well.
 */
namespace py hqueue.worker

/*
 * A batch that is in the log, as it lies in its row there. Anyone who reaches the port can send one:
 * it counts only with the MAC of a key that lies in ZooKeeper (docs/push.md draws what is under
 * it). Without one, or with any other, it says no more than that there is something to read.
 */
struct TBatch {
  1: i16 partition,
  2: i64 slot,
  3: binary header,
  /* The bodies of each topic. */
  4: map<binary, binary> cells,
  /* Which key, and the MAC. */
  5: optional binary key,
  6: optional binary mac
}

service HQueueWorkerService {
  /*
   * Something was appended to these partitions of a queue. A batch that was appended may come
   * along, if it is small: a worker that stands just before it need not read it. A frame has at
   * most 256 KiB.
   */
  oneway void appended(1: string queue, 2: list<i16> partitions, 3: list<TBatch> batches)
}
