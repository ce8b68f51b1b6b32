// Conversations in localStorage, each under a key of its own, so that two tabs do not overwrite each other's.

import { isConversation } from "./conversation.js";

const PREFIX = "weighbridge/conversation/";
const LAST = "weighbridge/settings";
/** What could not be written is kept for as long as the page is open. */
const unwritten = new Map();

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

/** All conversations, the last changed first. */
export function all() {
  const found = new Map();
  try {
    for (let i = 0; i < localStorage.length; i += 1) {
      const key = localStorage.key(i);
      const value = key.startsWith(PREFIX) ? read(key) : null;
      if (isConversation(value)) found.set(value.id, value);
    }
  } catch {
    // The browser forbids storage.
  }
  for (const [id, value] of unwritten) found.set(id, value);
  return [...found.values()].sort((a, b) => b.changed - a.changed);
}

/** Writes a conversation. Returns whether the browser has taken it. */
export function save(conversation) {
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    unwritten.delete(conversation.id);
    return true;
  } catch {
    unwritten.set(conversation.id, conversation);
    return false;
  }
}

export function remove(id) {
  unwritten.delete(id);
  try {
    localStorage.removeItem(PREFIX + id);
  } catch {
    // It was never written.
  }
}

/** The settings that were used last. */
export const lastSettings = () => read(LAST) ?? {};

export function saveSettings(settings) {
  try {
    localStorage.setItem(LAST, JSON.stringify(settings));
  } catch {
    // The next conversation starts with the defaults.
  }
}

/** Calls `changed` when another tab has written or removed a conversation. */
export function watch(changed) {
  addEventListener("storage", (event) => {
    if (event.key === null || event.key.startsWith(PREFIX)) changed(event.key?.slice(PREFIX.length));
  });
}
