// A conversation: a tree of messages, of which one path is shown. An edited message, or an answer that was retried, is a
// sibling of the one before it, so nothing that was said is lost.

/** The fields of a request that the settings have, all numbers. */
export const NUMBERS = ["temperature", "max_tokens", "top_p", "top_k", "min_p", "seed"];

// Without `crypto.randomUUID`, which pages of plain HTTP do not have.
function newId() {
  return [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function create(settings = {}) {
  return { version: 1, id: newId(), title: "", changed: Date.now(), settings: { ...settings }, messages: [], at: null };
}

/** Whether `value`, read from storage, is a conversation of this version. */
export function isConversation(value) {
  return value?.version === 1 && typeof value.id === "string" && Array.isArray(value.messages) && typeof value.settings === "object";
}

export const find = (conversation, id) => conversation.messages.find((message) => message.id === id);

/** The messages that are shown, from the first to the last. */
export function path(conversation, from = conversation.at) {
  const messages = [];
  for (let id = from; id !== null && messages.length <= conversation.messages.length; ) {
    const message = find(conversation, id);
    if (!message) break;
    messages.unshift(message);
    id = message.parent;
  }
  return messages;
}

/** Adds a message after `parent` (null: the first), and shows it. */
export function add(conversation, parent, role, content) {
  const message = { id: newId(), parent, role, content };
  conversation.messages.push(message);
  conversation.at = message.id;
  conversation.changed = Date.now();
  if (!conversation.title && role === "user") conversation.title = content.trim().split("\n")[0].slice(0, 60);
  return message;
}

/** Takes out a message that nothing follows. */
export function remove(conversation, message) {
  conversation.messages = conversation.messages.filter((other) => other !== message);
  if (conversation.at === message.id) conversation.at = message.parent;
}

/** The versions of a message, in the order in which they were written. */
export const versions = (conversation, message) => conversation.messages.filter((other) => other.parent === message.parent);

/** Shows a version, and what came last after it. */
export function show(conversation, message) {
  conversation.at = message.id;
  for (;;) {
    const next = conversation.messages.findLast((other) => other.parent === conversation.at);
    if (!next) return;
    conversation.at = next.id;
  }
}

/** The body of the request that answers the message `from`. */
export function request(conversation, from) {
  const { system, ...numbers } = conversation.settings;
  const messages = path(conversation, from).map(({ role, content, thought }) =>
    thought ? { role, content, reasoning_content: thought } : { role, content },
  );
  if (system?.trim()) messages.unshift({ role: "system", content: system });
  const body = { messages, stream: true, stream_options: { include_usage: true } };
  for (const name of NUMBERS) if (typeof numbers[name] === "number") body[name] = numbers[name];
  return body;
}
