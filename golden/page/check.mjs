// Uses the pages of `weighbridge serve` as people do, in Chromium, with a real model: with the mouse, with the keyboard alone, and
// with what axe-core finds for those who use neither eyes nor hands as others do.
//
//     npm install --prefix DIR playwright-core@1.65.1 axe-core@4.14.1        (and a Chromium: `apt-get install chromium`)
//     node golden/page/check.mjs WEIGHBRIDGE MODEL DIR [PICTURES]            (the program, and a model such as smollm2.gguf)
//
// CHROMIUM names the browser, if it is not /usr/bin/chromium. PICTURES is a folder for screenshots. Each part prints a line; the
// first that fails ends the script.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [program, model, modules, pictures] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, "check.cjs"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
if (pictures) mkdirSync(pictures, { recursive: true });

/** A question with a long answer. */
const LONG = "Write a long story about a lighthouse keeper and the sea.";
const WIDTHS = [360, 800, 1400];
/** What a model may say to harm who reads it. */
const HOSTILE = [
  "<img src=x onerror='window.harmed=1'><script>window.harmed=1</script><iframe src='https://evil.example'></iframe>",
  "![a picture](https://evil.example/x.png) [js](javascript:window.harmed=1) [data](data:text/html,x) [here](/v1/models)",
  "[JS](JaVaScRiPt:window.harmed=1) [ctl](java\u0001script:window.harmed=1) <javascript:window.harmed=1> [ent](javascript&colon;window.harmed=1)",
  "[good](https://good.example/?a=1&b=2) <me@good.example> https://plain.example",
  "```html\n<img src=x onerror='window.harmed=1'>\n```",
  "| <img src=x onerror='window.harmed=1'> | b |\n|---|---|\n| `<b>` | &lt;i&gt; |",
  `${">".repeat(200)} deep`,
  `${"- ".repeat(300)} deep`,
  `${"*".repeat(4000)} stars ${"[".repeat(3000)} brackets`,
].join("\n\n");

let browser;

/** A server on a free port. */
async function serve(...more) {
  const child = spawn(program, ["serve", model, "--port", "0", "--ctx", "512", ...more], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  const address = await new Promise((resolve, reject) => {
    child.stderr.on("data", (data) => {
      said += data;
      const found = /listening on (http:\/\/\S+)/.exec(said);
      if (found) resolve(`${found[1]}/`);
    });
    child.on("exit", () => reject(new Error(`the server ended:\n${said}`)));
  });
  return { address, child, lines: () => said, end: () => new Promise((done) => (child.on("exit", done), child.kill())) };
}

/** A page of a new person, who has seen nothing yet; what goes wrong in it ends the script. */
async function open(address, { width = 1000, height = 760, scheme = "light", faults = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, acceptDownloads: true });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  const wrong = [];
  // In each of its tabs.
  context.on("weberror", (error) => wrong.push(String(error.error())));
  context.on("console", (message) => {
    const text = message.text();
    // The browser itself says so of each answer that is no 2xx.
    if (message.type() === "error" && !faults.some((fault) => text.includes(fault))) wrong.push(text);
  });
  context.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(address) && !url.startsWith("data:") && !url.startsWith("blob:")) wrong.push(`asks ${url}`);
  });
  await page.goto(address);
  await page.waitForFunction(() => document.getElementById("name")?.textContent !== "the model" || document.querySelector("dialog[open]"));
  return { page, context, done: async () => (await context.close(), assert.deepEqual(wrong, [])) };
}

const idle = (page) => page.waitForSelector("#send:not([hidden])", { state: "attached", timeout: 120_000 });
const answers = (page) => page.locator("article.assistant .text").allInnerTexts();

async function say(page, text) {
  await page.fill("#message", text);
  await page.press("#message", "Enter");
}

async function set(page, fields) {
  await page.click("#settings-toggle");
  for (const [name, value] of Object.entries(fields)) await page.fill(`#${name}`, value);
  await page.click("#settings-toggle");
}

/** Asks axe for faults that keep somebody from using the page. */
async function usable(page, what) {
  // The page's policy lets no inline script in; this is not one of the page.
  const found = await page.evaluate(`${axe};axe.run(document, {resultTypes: ["violations"]})`);
  const grave = found.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const shown = grave.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target).join(", ")}`);
  assert.deepEqual(shown, [], what);
  return found.violations.map(({ id }) => id);
}

async function picture(page, name) {
  if (pictures) await page.screenshot({ path: path.join(pictures, `${name}.png`) });
}

async function conversation({ address }) {
  const { page, done } = await open(address);
  await set(page, { temperature: "0", max_tokens: "160" });
  // It grows while it comes.
  await page.evaluate(() => {
    window.lengths = new Set();
    const look = () => window.lengths.add(document.querySelector(".said")?.textContent.length ?? 0);
    new MutationObserver(look).observe(document.getElementById("thread"), { subtree: true, childList: true, characterData: true });
  });
  await say(page, "Why is the sky blue?");
  await idle(page);
  const lengths = await page.evaluate(() => window.lengths.size);
  assert.ok(lengths > 3, `it came in ${lengths} pieces`);
  const facts = await page.locator(".facts").last().innerText();
  assert.match(facts, /\d+ tokens · [\d.]+ tokens\/s · first after [\d.]+ s · prompt \d+ tokens/);
  const [first] = await answers(page);
  // A screen reader was told all of it, in pieces longer than tokens.
  const heard = await page.locator("#live p").allInnerTexts();
  const letters = (text) => text.replace(/[^\p{L}]/gu, "");
  assert.equal(letters(heard.join("")), letters(first));
  assert.ok(heard.length <= 40, `${heard.length} pieces`);

  // Stopped: what has come stays, and the server has room at once.
  await set(page, { max_tokens: "" });
  await say(page, LONG);
  await page.waitForFunction(() => document.querySelectorAll(".assistant")[1]?.querySelector(".said").textContent.length > 20);
  await page.keyboard.press("Escape");
  await idle(page);
  assert.match(await page.locator(".facts").last().innerText(), /^stopped · about \d+ tokens/);
  const kept = (await answers(page))[1];
  assert.ok(kept.length > 10, `what had come is kept: ${kept}`);

  // Edited: the same beginning has another end, and the first is kept.
  await set(page, { max_tokens: "24" });
  const second = page.locator("article.user").nth(1);
  await second.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Edit the message").fill("Say hello.");
  await page.keyboard.press("Enter");
  await idle(page);
  assert.equal(await page.locator("article").count(), 4);
  assert.equal(await second.locator(".text").innerText(), "Say hello.");
  assert.match(await second.locator(".actions").innerText(), /2 of 2/);
  const hello = (await answers(page))[1];
  await second.getByRole("button", { name: "Version before" }).click();
  assert.match(await second.locator(".text").innerText(), /^Write/);
  await second.getByRole("button", { name: "Next version" }).click();
  assert.equal((await answers(page))[1], hello);

  // Retried: at temperature 0, the same answer again.
  await page.locator("article.assistant").first().getByRole("button", { name: "Retry" }).click();
  await idle(page);
  assert.equal(await page.locator("article").count(), 2);
  assert.match(await page.locator("article.assistant .actions").innerText(), /2 of 2/);
  const [again] = await answers(page);
  assert.ok(first.startsWith(again.slice(0, 40)), `${first}\n\n${again}`);

  // Copied as it was written.
  await page.locator("article.user").first().getByRole("button", { name: "Copy" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "Why is the sky blue?");

  // Kept, named, exported, deleted.
  await page.reload();
  assert.equal(await page.locator("article").count(), 2);
  await page.getByRole("button", { name: "Rename" }).click();
  await page.fill("#title", "Of the sky");
  await page.keyboard.press("Enter");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export", exact: true }).click();
  const file = await download;
  assert.equal(file.suggestedFilename(), "Of-the-sky.json");
  const exported = JSON.parse(readFileSync(await file.path(), "utf8"));
  assert.equal(exported.messages.filter(({ content }) => content === "Why is the sky blue?").length, 1);
  assert.deepEqual(exported.settings, { temperature: 0, max_tokens: 24 });
  await page.getByRole("button", { name: "New conversation" }).click();
  await say(page, "Name three rivers.");
  await idle(page);
  await page.getByRole("link", { name: "Of the sky" }).click();
  assert.equal(await page.locator("article").count(), 2);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.locator("#ask-delete").getByRole("button", { name: "Delete" }).click();
  await page.waitForSelector("#thread .welcome");
  assert.deepEqual(await page.locator("#conversations a").allInnerTexts(), ["Name three rivers."]);
  await done();
}

/** All of it without a pointer. Each stop of the Tab key must be seen. */
async function keyboard({ address }) {
  const { page, done } = await open(address);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.dataset?.do || document.activeElement.tagName);
  const until = async (wanted, key = "Tab") => {
    for (let i = 0; i < 60; i += 1) {
      if ((await focused()) === wanted) return;
      await page.keyboard.press(key);
    }
    assert.fail(`the focus never gets to ${wanted}`);
  };
  assert.equal(await focused(), "message");
  await until("settings-toggle");
  await page.keyboard.press("Enter");
  await until("temperature");
  await page.keyboard.type("0");
  await until("max_tokens");
  await page.keyboard.type("16");
  await until("settings-toggle", "Shift+Tab");
  await page.keyboard.press("Enter");
  await until("message");
  await page.keyboard.type("First line");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("second line");
  await page.keyboard.press("Enter");
  await idle(page);
  assert.equal(await page.locator("article.user .text").innerText(), "First line\nsecond line");
  assert.equal(await focused(), "message", "the focus stays where one writes");
  // What a screen reader was told.
  assert.match(await page.locator("#said").innerText(), /complete|^$/);
  await until("edit", "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  assert.equal(await focused(), "edit", "the focus comes back from a change that was given up");
  await page.keyboard.press("Enter");
  await page.keyboard.type(" and a third");
  await page.keyboard.press("Enter");
  await idle(page);
  await until("back", "Shift+Tab");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "on", "the version before has none before it");
  await until("rename", "Shift+Tab");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "title");
  await page.keyboard.press("Escape");
  assert.equal(await focused(), "rename");
  await until("new", "Shift+Tab");
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "message");
  await done();
}

async function harmless({ address }) {
  const { page, done } = await open(address);
  await page.evaluate((content) => {
    const messages = [
      { id: "1", parent: null, role: "user", content },
      { id: "2", parent: "1", role: "assistant", content, finish: "stop" },
      { id: "3", parent: "2", role: "user", content: "x" },
      { id: "4", parent: "3", role: "assistant", content: "Well.", thought: content, finish: "stop" },
      // Nested deeper than the reader of Markdown can go: shown as it is.
      { id: "5", parent: "4", role: "assistant", content: `${">".repeat(5000)} ${content}`, finish: "stop" },
    ];
    const one = { version: 1, id: "hostile", title: "<img src=x onerror='window.harmed=1'>", changed: 1, settings: {}, messages, at: "5" };
    localStorage.setItem("weighbridge/conversation/hostile", JSON.stringify(one));
  }, HOSTILE);
  await page.goto(`${address}#hostile`);
  await page.waitForSelector("article.assistant");
  await page.locator("summary").click();
  assert.equal(await page.locator("#thread :is(img, script, iframe, object, embed, svg, style, form, input)").count(), 0);
  const links = await page.locator("#thread a").evaluateAll((all) => all.map((one) => [one.protocol, one.rel, one.href]));
  assert.equal(links.length, 8, JSON.stringify(links));
  for (const [protocol, rel] of links) assert.ok(["http:", "https:", "mailto:"].includes(protocol) && rel.includes("noopener"));
  assert.ok(links.some(([, , href]) => href === "https://good.example/?a=1&b=2"));
  assert.equal(await page.evaluate(() => window.harmed), undefined);
  assert.equal(await page.evaluate(() => document.querySelectorAll("#thread [onerror], #thread [onclick]").length), 0);
  await done();
}

async function refusals() {
  // A key: asked for once, wrong and then right; kept for this tab alone.
  const keyed = await serve("--api-key", "sesame", "--max-tokens", "100");
  const { page, context, done } = await open(keyed.address, { faults: ["401", "400"] });
  await page.waitForSelector("#ask-key[open]");
  await usable(page, "the key");
  await page.fill("#key", "wrong");
  await page.keyboard.press("Enter");
  await page.getByText("The server does not take this key.").waitFor();
  await page.fill("#key", "sesame");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("name").textContent !== "the model");
  assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("sesame"));
  // Every line of a refusal.
  await set(page, { max_tokens: "101", temperature: "0" });
  await say(page, "Hello");
  const problem = page.locator("#thread .problem");
  await problem.waitFor();
  assert.match(await problem.innerText(), /400[\s\S]*`max_tokens`: wanted a whole number from 0 to 100, found 101/);
  await usable(page, "a refusal");
  await set(page, { max_tokens: "8" });
  await problem.getByRole("button").click();
  await idle(page);
  assert.equal((await answers(page)).length, 1);
  // The model's page takes the key of the tab; a new tab is asked for it.
  await page.getByRole("link", { name: "smollm2" }).click();
  await page.waitForSelector("svg.picture");
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector("svg.picture .end")).textAnchor), "end");
  const other = await context.newPage();
  await other.goto(`${keyed.address}model`);
  await usable(other, "the model's page without a key");
  await other.fill("#key", "sesame");
  await other.keyboard.press("Enter");
  await other.waitForSelector("svg.picture");
  await other.getByRole("searchbox").fill("ffn_up");
  assert.match(await other.locator("#found").innerText(), /^30 of \d+$/);
  await done();
  await keyed.end();

  // No place: when to come back.
  const small = await serve("--parallel", "1", "--queue", "0");
  const { page: first, done: firstDone } = await open(small.address);
  const { page: second, done: secondDone } = await open(small.address, { faults: ["429"] });
  await say(first, LONG);
  await first.waitForSelector(".said:not(:empty)");
  await say(second, "Hello");
  await second.locator("#thread .problem").waitFor();
  assert.match(await second.locator("#thread .problem").innerText(), /429[\s\S]*Try again \(the server says in \d+ s\)/);
  await first.click("#stop");
  await idle(first);
  await second.locator("#thread .problem button").click();
  await idle(second);
  await secondDone();
  // The server goes away.
  await say(first, LONG);
  await first.waitForFunction(() => document.querySelectorAll(".said")[1]?.textContent);
  small.child.kill("SIGKILL");
  await first.locator("#thread .problem").waitFor();
  assert.match(await first.locator("#thread .problem").innerText(), /The connection|does not answer/);
  await firstDone().catch((error) => assert.match(String(error), /ERR_/));
}

/** Two models: each conversation has the one that was chosen for it. */
async function several() {
  const two = await serve(`two=${model}`);
  for (const width of WIDTHS) {
    const { page, done } = await open(two.address, { width });
    const models = page.getByLabel("Model", { exact: true });
    const [first] = await models.locator("option").allInnerTexts();
    assert.deepEqual(await models.locator("option").allInnerTexts(), [first, "two"]);
    assert.equal(await models.inputValue(), first);
    await set(page, { temperature: "0", max_tokens: "4" });
    await models.selectOption("two");
    await say(page, "Hello");
    await idle(page);
    assert.match(await page.locator("article.assistant").last().innerText(), /two/);
    await page.reload();
    await page.waitForFunction(() => document.getElementById("models").value === "two");
    assert.equal(await page.locator("#name").getAttribute("href"), "model?name=two");
    // Another one beside it: what is chosen there leaves this one as it is.
    const here = page.url();
    if (width < 800) await page.click("#list-toggle");
    await page.click("#new");
    await models.selectOption(first);
    await say(page, "Hello");
    await idle(page);
    assert.doesNotMatch(await page.locator("article.assistant").last().innerText(), /two/);
    await page.goto(here);
    await page.waitForFunction(() => document.getElementById("models").value === "two");
    await usable(page, `two models, ${width} px`);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px wider than ${width}`);
    await picture(page, `several-${width}`);
    await page.click("#name");
    await page.waitForSelector("svg.picture");
    await done();
  }
  assert.equal(await two.end(), 0);
}

async function everybody({ address }) {
  let others = new Set();
  for (const scheme of ["light", "dark"]) {
    for (const width of WIDTHS) {
      const { page, done } = await open(address, { width, scheme });
      const look = async (what) => {
        (await usable(page, `${what}, ${width} px, ${scheme}`)).forEach((id) => others.add(id));
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `${what} is ${overflow} px wider than ${width}`);
        await picture(page, `${what}-${width}-${scheme}`);
      };
      await look("empty");
      await set(page, { temperature: "0", max_tokens: "60" });
      await say(page, "List three colours, with a word on each.");
      await idle(page);
      const text = "# Heading\n\nSome `code`, a [link](https://good.example), **strong**.\n\n1. one\n2. two\n   - [x] done\n\n"
        + "| a | b |\n|---|--:|\n| long text of a cell that needs room | 2 |\n\n> quoted\n\n```rust\n"
        + `fn main() { println!("${"long ".repeat(30)}"); }\n\`\`\`\n`;
      await page.evaluate((content) => {
        const name = Object.keys(localStorage).find((key) => key.startsWith("weighbridge/conversation/"));
        const one = JSON.parse(localStorage.getItem(name));
        one.messages.push({ id: "u", parent: one.at, role: "user", content: "And with Markdown?" });
        one.messages.push({ id: "a", parent: "u", role: "assistant", content, finish: "length", stats: { answer: 83, prompt: 40, cached: 20, first: 0.1, seconds: 1 } });
        one.at = "a";
        localStorage.setItem(name, JSON.stringify(one));
      }, text);
      await page.reload();
      await page.waitForFunction(() => document.getElementById("name").textContent !== "the model");
      await look("chat");
      await page.click("#settings-toggle");
      await look("settings");
      await page.click("#settings-toggle");
      if (width < 800) await page.click("#list-toggle");
      await page.getByRole("button", { name: "Delete" }).click();
      await look("dialog");
      await page.keyboard.press("Escape");
      await look("list");
      await page.goto(`${address}model`);
      await look("model");
      await done();
    }
  }
  console.log(`    of less weight: ${[...others].join(", ") || "nothing"}`);
}

browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const server = await serve();
try {
  for (const part of [conversation, keyboard, harmless, refusals, several, everybody]) {
    const begin = performance.now();
    await part(server);
    console.log(`ok ${((performance.now() - begin) / 1000).toFixed(1).padStart(6)} s  ${part.name}`);
  }
  assert.equal(await server.end(), 0);
} finally {
  server.child.kill();
  await browser.close();
}
