// BullMQ on Redis: one queue, a job a push, with its level as the job's priority, which is strict.
// Other weights mean another priority for each waiting job, one by one.
//
// `feed` follows orders on stdin, `work` works until it is stopped.
import { openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";

const QUEUE = "pushes";
const AT_ONCE = 1_000;
const BODY = "x".repeat(150);
const PRIORITIES = { high: 10, medium: 20, low: 30 };
const FIRST = 5;

const { hostname, port } = new URL(process.env.PEERS_REDIS);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };

async function feed() {
  const queue = new Queue(QUEUE, { connection });
  for await (const line of createInterface({ input: process.stdin })) {
    const [kind, ...words] = line.split(" ");
    if (kind === "task") await submit(queue, words[0], words[1], Number(words[2]));
    else await putFirst(queue, "low");
    process.stdout.write("ok\n");
  }
  await queue.close();
}

async function submit(queue, task, level, pushes) {
  const opts = { priority: PRIORITIES[level], removeOnComplete: true };
  for (let first = 1; first <= pushes; first += AT_ONCE) {
    const seqs = Array.from({ length: Math.min(AT_ONCE, pushes + 1 - first) }, (_, i) => first + i);
    const jobs = seqs.map((seq) => ({ name: "push", data: { task, seq, level, body: BODY }, opts }));
    await queue.addBulk(jobs);
  }
}

async function putFirst(queue, level) {
  const waiting = await queue.getJobs(["prioritized"]);
  const moved = waiting.filter((job) => job?.data.level === level);
  for (let first = 0; first < moved.length; first += AT_ONCE) {
    const jobs = moved.slice(first, first + AT_ONCE);
    await Promise.all(jobs.map((job) => job.changePriority({ priority: FIRST })));
  }
}

function work() {
  const log = openSync(process.env.PEERS_LOG, "a");
  const handle = async ({ data: { task, seq, level } }) => {
    const at_ms = performance.timeOrigin + performance.now();
    writeSync(log, `${JSON.stringify({ task, seq, level, at_ms })}\n`);
    await sleep(100 + ((seq * 37) % 21) - 10); // as in handler.py
  };
  const worker = new Worker(QUEUE, handle, {
    connection,
    concurrency: Number(process.env.PEERS_SLOTS),
  });
  worker.on("error", (error) => console.error(error));
  process.once("SIGTERM", () => worker.close().then(() => process.exit(0)));
}

if (process.argv[2] === "feed") await feed();
else work();
