// pg-boss: inserted in bulk, fetched and completed in batches.
import fs from "node:fs";
import * as pgBoss from "pg-boss";

const [what, jobs] = [process.argv[2], Number(process.argv[3])];
const PgBoss = pgBoss.PgBoss ?? pgBoss.default; // from version 11 on, and before
const boss = new PgBoss({ host: process.env.PGHOST, user: process.env.PGUSER, database: process.env.PGDATABASE });
boss.on("error", (error) => console.error(error));
await boss.start();
await boss.createQueue("deliver");
if (what === "enqueue") {
  for (let first = 0; first < jobs; first += 1000) {
    const batch = Array.from({ length: Math.min(1000, jobs - first) }, (_, n) => ({ data: { number: first + n } }));
    await (pgBoss.PgBoss ? boss.insert("deliver", batch) : boss.insert(batch.map((job) => ({ name: "deliver", ...job }))));
  }
  await boss.stop();
} else {
  const book = fs.openSync(process.env.BOOK, "a");
  for (;;) {
    const batch = await boss.fetch("deliver", { batchSize: 200 });
    if (!batch.length) { await new Promise((resolve) => setTimeout(resolve, 200)); continue; }
    for (const job of batch) fs.writeSync(book, `${job.data.number} ${Date.now() / 1000}\n`);
    await boss.complete("deliver", batch.map((job) => job.id));
  }
}
