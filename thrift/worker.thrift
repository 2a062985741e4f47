/*
 * What a worker serves: wake-ups, over Thrift's framed transport and binary protocol. Whoever
 * appends tells the worker that has claimed the partition, and does not care what becomes of it:
 * a worker looks by itself as well.
 */
namespace py hqueue.worker

service HQueueWorkerService {
  /* Something was appended to these partitions of a queue. */
  oneway void appended(1: string queue, 2: list<i16> partitions)
}
