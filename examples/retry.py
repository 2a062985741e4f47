"""Run a command for each message. If it fails, try again after 1, 10 and 60 seconds, and then
reject the message. No message waits for another one that failed.

python examples/retry.py jobs workers -- ./handle-job
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import time

import hqueue


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a command for each message, with retries.")
    parser.add_argument("queue", help="its name; it must be there")
    parser.add_argument("group", help="any name; processes with one name share the work")
    parser.add_argument("command", nargs="+", help="gets the value on stdin; exits with 0 if done")
    parser.add_argument("--delay", type=float, action="append", help="seconds, for each retry")
    arguments = parser.parse_args()
    delays_s = [0.0, *(arguments.delay or (1, 10, 60))]
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))

    client = hqueue.connect()
    stages = [client.queue(arguments.queue)]
    for number in range(1, len(delays_s)):
        # Each delay has a queue. All its messages wait equally long, so the first one is due first.
        name = f"{arguments.queue}.retry-{number}"
        stages.append(client.create_queue(name, partitions=stages[0].partitions, exist_ok=True))
    names = [stage.name for stage in stages]
    due_s: dict[tuple[str, int], float] = {}
    with client, hqueue.Consumer(names, group=arguments.group, client=client) as consumer:
        while not stopping:
            if due := [key for key in consumer.paused() if due_s[key] <= time.time()]:
                consumer.resume(*due)
            for message in consumer.poll(timeout_ms=100, messages_max=1):
                stage, key = names.index(message.queue), (message.queue, message.partition)
                due_s[key] = message.timestamp / 1e3 + delays_s[stage]
                if due_s[key] > time.time():
                    consumer.seek(key, message.id)
                    consumer.pause(key)
                    continue
                done = subprocess.run(arguments.command, input=message.value, check=False)
                if done.returncode and stage + 1 == len(stages):
                    consumer.reject(message, f"exit code {done.returncode}")
                elif done.returncode:  # With a key: put once, even if this process is killed here.
                    at, token = message.id, f"{key} {message.id}"
                    following, number = stages[stage + 1], message.partition
                    following.put(message, partition=number, idempotency_key=token, since=at)
                consumer.commit()


if __name__ == "__main__":
    main()
