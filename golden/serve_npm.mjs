// Asks `weighbridge serve` with npm's clients: OpenAI's, Ollama's, and the AI SDK.
//
//     npm install --prefix MODULES openai@7.57.0 ollama@0.6.4 ai@6.0.326 @ai-sdk/openai-compatible@2.0.92 zod@4.6.7
//     node serve_npm.mjs WEIGHBRIDGE MODEL MODULES      (the program, a model with a chat template, the folder of packages)
//
// It starts the server, and ends it. Each part prints a line; the first that fails ends the script.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [program, file, modules] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, "check.cjs"));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { default: OpenAI } = await load("openai");
const { Ollama } = await load("ollama");
const { generateText, streamText } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");

const server = spawn(program, ["serve", file, "--port", "0", "--ctx", "512"], { stdio: ["ignore", "ignore", "pipe"] });
process.on("exit", () => server.kill());
const address = await new Promise((resolve, reject) => {
  let said = "";
  server.stderr.on("data", (data) => {
    said += data;
    const found = /listening on (http:\/\/[^\s/]+)/.exec(said);
    if (found) resolve(found[1]);
  });
  server.on("exit", () => reject(new Error(`the server ended:\n${said}`)));
});
const question = [{ role: "user", content: "Why is the sky blue?" }];
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;

const whole = await client.chat.completions.create({ model, messages: question, temperature: 0, max_tokens: 24 });
const wanted = whole.choices[0].message.content;
let streamed = "";
for await (const chunk of await client.chat.completions.create({
  model, messages: question, temperature: 0, max_tokens: 24, stream: true,
})) streamed += chunk.choices[0].delta.content ?? "";
assert.equal(streamed, wanted);
console.log("ok openai chat");

const response = await client.responses.create({ model, input: question, temperature: 0, max_output_tokens: 24 });
assert.equal(response.output_text, wanted);
const stream = client.responses.stream({ model, input: question, temperature: 0, max_output_tokens: 24 });
let deltas = "";
stream.on("response.output_text.delta", (event) => { deltas += event.delta; });
assert.equal((await stream.finalResponse()).output_text, wanted);
assert.equal(deltas, wanted);
console.log("ok openai responses");

const ollama = new Ollama({ host: address });
let lines = "";
for await (const part of await ollama.chat({
  model, messages: question, stream: true, options: { temperature: 0, num_predict: 24 },
})) lines += part.message.content;
assert.equal(lines, wanted);
console.log("ok ollama");

const provider = createOpenAICompatible({ name: "weighbridge", baseURL: `${address}/v1`, includeUsage: true });
const ask = { model: provider(model), prompt: question[0].content, temperature: 0, maxOutputTokens: 24 };
assert.equal((await generateText(ask)).text, wanted);
const sdk = streamText(ask);
let text = "";
for await (const part of sdk.textStream) text += part;
assert.equal(text, wanted);
assert.equal((await sdk.usage).outputTokens, 24);
console.log("ok ai sdk");
process.exit();
