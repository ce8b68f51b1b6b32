// One answer as it comes: the request, the pieces, the clock.

import { ask, events } from "./api.js";
import { request } from "./conversation.js";

/**
 * Asks for an answer to the message `parent`, and writes it into `message`. `changed` is called after each piece. `model` is the one that
 * answers, if there are several.
 */
export async function answer(conversation, parent, message, signal, changed, model) {
  const begin = performance.now();
  let first;
  let last;
  const stats = {};
  message.stats = stats;
  const measure = () => {
    if (first === undefined) return;
    stats.first = (first - begin) / 1000;
    stats.seconds = (last - first) / 1000;
  };
  try {
    const body = { ...request(conversation, parent), model };
    const response = await ask("v1/chat/completions", { body, signal });
    for await (const event of events(response)) {
      message.model ??= event.model;
      const [choice] = event.choices;
      const { content = "", reasoning_content: thought = "" } = choice?.delta ?? {};
      if (content || thought) {
        last = performance.now();
        first ??= last;
        message.content += content;
        if (thought) message.thought = (message.thought ?? "") + thought;
        changed();
      }
      if (choice?.finish_reason) message.finish = choice.finish_reason;
      if (event.usage) {
        stats.answer = event.usage.completion_tokens;
        stats.prompt = event.usage.prompt_tokens;
        stats.cached = event.usage.prompt_tokens_details?.cached_tokens;
      }
    }
    measure();
  } catch (error) {
    measure();
    if (error.name !== "AbortError") throw error;
    message.finish = "stopped";
    await countStopped(message, model);
  }
}

/** A stream that was stopped has no usage: the text's tokens are nearly those of the answer. */
async function countStopped(message, model) {
  const content = (message.thought ?? "") + message.content;
  if (!content) return;
  try {
    const response = await ask("tokenize", { body: { content, model } });
    message.stats.answer = (await response.json()).tokens.length;
    message.stats.about = true;
  } catch {
    // The figure is left out.
  }
}
