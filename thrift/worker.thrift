/*
 * What a worker serves: wake-ups, over Thrift's framed transport and binary protocol. Whoever
 * appends tells the worker that has claimed the partition, and does not care what becomes of it:
 * a worker looks by itself as well.
 */
namespace py hqueue.worker

/* A batch that is in the log, as it lies in its row there. */
struct TBatch {
  1: i16 partition,
  2: i64 slot,
  3: binary header,
  /* The bodies of each topic. */
  4: map<binary, binary> cells
}

service HQueueWorkerService {
  /*
   * Something was appended to these partitions of a queue. A batch that was appended may come
   * along, if it is small: a worker that stands just before it need not read it. A frame has at
   * most 256 KiB.
   */
  oneway void appended(1: string queue, 2: list<i16> partitions, 3: list<TBatch> batches)
}
