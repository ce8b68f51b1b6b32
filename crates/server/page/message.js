// How a message looks.

import { versions } from "./conversation.js";
import * as markdown from "./markdown.js";

/** Makes the element of a message. What its buttons do is told by `data-do`; `update` fills it. */
export function make(message) {
  const article = document.createElement("article");
  article.className = message.role;
  article.dataset.id = message.id;
  const who = document.createElement("h2");
  who.id = `who-${message.id}`;
  article.setAttribute("aria-labelledby", who.id);
  const text = document.createElement("div");
  text.className = "text";
  const facts = document.createElement("p");
  facts.className = "facts faint";
  const actions = document.createElement("div");
  actions.className = "actions";
  article.append(who, text, facts, actions);
  return article;
}

/** Shows what a message says by now; `model` is the name of who answers, where the answer does not say it. */
export function update(article, conversation, message, model, isRunning) {
  const [who, text, facts, actions] = article.children;
  const name = message.role === "user" ? "You" : (message.model ?? model);
  if (who.textContent !== name) who.textContent = name;
  if (message.role === "user") {
    if (text.textContent !== message.content) text.textContent = message.content;
  } else {
    answer(text, message, isRunning);
  }
  facts.textContent = message.role === "assistant" && !isRunning ? told(message) : "";
  facts.hidden = !facts.textContent;
  const all = versions(conversation, message);
  const at = all.indexOf(message);
  const state = `${isRunning} ${at} ${all.length}`;
  // Buttons that stay the same keep the focus.
  if (actions.dataset.state === state) return;
  actions.dataset.state = state;
  const buttons = [];
  if (!isRunning) {
    buttons.push(button("copy", "Copy"));
    buttons.push(message.role === "user" ? button("edit", "Edit") : button("retry", "Retry"));
  }
  if (all.length > 1) {
    const place = document.createElement("span");
    place.className = "faint";
    place.textContent = `${at + 1} of ${all.length}`;
    const [back, on] = [button("back", "←", "Version before"), button("on", "→", "Next version")];
    back.disabled = isRunning || at === 0;
    on.disabled = isRunning || at === all.length - 1;
    buttons.push(back, place, on);
  }
  actions.replaceChildren(...buttons);
}

export function button(what, label, name) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "plain";
  made.dataset.do = what;
  made.textContent = label;
  if (name) made.setAttribute("aria-label", name);
  return made;
}

/** An answer: what the model thought first, folded away, and what it says. */
function answer(into, { content, thought = "" }, isRunning) {
  let [fold, said] = [into.querySelector(":scope > details"), into.querySelector(":scope > .said")];
  if (!said) {
    said = document.createElement("div");
    said.className = "said";
    into.append(said);
  }
  if (thought.trim() && !fold) {
    fold = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "Reasoning";
    fold.append(summary, document.createElement("div"));
    into.prepend(fold);
  }
  if (fold) markdown.show(fold.lastElementChild, thought);
  markdown.show(said, content);
  into.classList.toggle("waiting", isRunning && !content && !thought);
}

/** The figures of an answer, and how it ended. */
function told({ stats, finish }) {
  const facts = [];
  if (finish === "stopped") facts.push("stopped");
  if (finish === "length") facts.push("cut off at the limit of tokens or of the context");
  if (finish === undefined) facts.push("incomplete");
  if (stats) {
    const { answer: tokens, prompt, cached, about, first, seconds } = stats;
    if (tokens !== undefined) facts.push(`${about ? "about " : ""}${count(tokens, "token")}`);
    // The first token comes with the prompt's end: the time after it is that of all others.
    if (tokens > 1 && seconds > 0) facts.push(`${figure((tokens - 1) / seconds)} tokens/s`);
    if (first !== undefined) facts.push(`first after ${first.toFixed(2)} s`);
    if (prompt !== undefined) facts.push(`prompt ${count(prompt, "token")}${cached ? `, ${cached.toLocaleString("en")} cached` : ""}`);
  }
  return facts.join(" · ");
}

const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
const figure = (n) => (n < 100 ? n.toFixed(1) : n.toFixed(0));
