// The chat page: what is shown, and what its buttons do.

import { Refusal, ask, key, setKey } from "./api.js";
import * as tree from "./conversation.js";
import { copy, download, open } from "./dialog.js";
import * as look from "./message.js";
import { Reader, say } from "./speech.js";
import * as store from "./store.js";
import { answer } from "./stream.js";

const $ = (id) => document.getElementById(id);
const [thread, field, fields] = [$("thread"), $("message"), $("fields")];

/** The models that chat. */
let models = [];
/** The conversation that is shown. */
let current;
/** Answers that are coming, by conversation. */
const runs = new Map();
/** Why the last request of a conversation had no answer. */
const faults = new Map();

// ---------------------------------------------------------------- the model, and the key

/** Does `work`; asks for a key, and does it again, as long as the server wants one. */
async function withKey(work) {
  for (let wrong = false; ; wrong = true) {
    try {
      return await work();
    } catch (error) {
      if (error.status !== 401 || !(await askKey(wrong || key() !== ""))) throw error;
    }
  }
}

let asking;

/** Asks for the key; only once, if several requests want one. */
function askKey(isWrong) {
  $("ask-key-why").textContent = `${isWrong ? "The server does not take this key." : "The server asks for a key."} It is kept until this tab is closed.`;
  $("key").value = key();
  asking ??= open("ask-key").then((given) => {
    asking = undefined;
    if (given) setKey($("key").value.trim());
    return given;
  });
  return asking;
}

async function meet() {
  try {
    const response = await withKey(() => ask("v1/models"));
    models = (await response.json()).data.filter(({ meta }) => meta.task === "text");
    $("models").replaceChildren(...models.map(({ id }) => new Option(id)));
    $("models").hidden = models.length < 2;
    nameModel();
    notice("");
    draw();
  } catch (error) {
    notice(error.message);
  }
}

/** The model that answers in the conversation that is shown: the one that was chosen, if it is still there. */
const chosen = () => models.find(({ id }) => id === current?.settings.model) ?? models[0];

function nameModel() {
  const model = chosen();
  if (!model) return;
  const isOne = models.length < 2;
  $("name").textContent = isOne ? model.id : "about";
  $("name").href = isOne ? "model" : `model?name=${encodeURIComponent(model.id)}`;
  $("models").value = model.id;
  // Only loading tells how many there are.
  $("context").textContent = model.meta.n_ctx ? `${model.meta.n_ctx.toLocaleString("en")} positions` : "";
  document.title = `${model.id} – Weighbridge`;
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// ---------------------------------------------------------------- the list of conversations

function drawList() {
  const all = store.all();
  if (!all.some(({ id }) => id === current.id) && current.messages.length) all.unshift(current);
  const list = $("conversations");
  const focused = list.contains(document.activeElement) ? document.activeElement.dataset : null;
  list.replaceChildren(
    ...all.map((conversation) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `#${conversation.id}`;
      link.textContent = conversation.title || "Without a name";
      link.dataset.of = conversation.id;
      item.append(link);
      if (conversation.id === current.id) {
        link.setAttribute("aria-current", "page");
        const actions = document.createElement("div");
        actions.className = "actions";
        actions.append(look.button("rename", "Rename"), look.button("export", "Export"), look.button("delete", "Delete"));
        item.append(actions);
      }
      return item;
    }),
  );
  if (focused?.of) list.querySelector(`[data-of="${CSS.escape(focused.of)}"]`)?.focus();
  if (focused?.do) list.querySelector(`[data-do="${CSS.escape(focused.do)}"]`)?.focus();
}

function save(conversation) {
  if (!conversation.messages.length) return;
  if (!store.save(conversation)) {
    notice("The browser has no room for this conversation: it is lost when the page is closed. Export it, or delete others.");
  }
}

/** Shows a conversation. */
function show(conversation) {
  current = conversation;
  if (location.hash.slice(1) !== conversation.id) history.replaceState(null, "", `#${conversation.id}`);
  for (const name of ["system", ...tree.NUMBERS]) fields.elements[name].value = conversation.settings[name] ?? "";
  nameModel();
  thread.replaceChildren();
  draw();
  drawList();
  thread.scrollTop = thread.scrollHeight;
}

function begin() {
  panel("list", false);
  show(tree.create(store.lastSettings()));
  field.focus();
}

/** Shows the conversation that the address names, or a new one. */
function route() {
  const id = location.hash.slice(1);
  if (current && id === current.id) return;
  const found = runs.get(id)?.conversation ?? store.all().find((one) => one.id === id);
  show(found ?? tree.create(store.lastSettings()));
}

$("new").addEventListener("click", begin);
$("conversations").addEventListener("click", async ({ target }) => {
  if (target.dataset.of) {
    panel("list", false);
    if (innerWidth < 800) field.focus();
  }
  const conversation = current;
  const name = conversation.title || "Without a name";
  if (target.dataset.do === "export") {
    download(`${fileName(name)}.json`, JSON.stringify(conversation, null, 2));
  } else if (target.dataset.do === "rename") {
    $("title").value = conversation.title;
    if (!(await open("ask-name"))) return;
    conversation.title = $("title").value.trim();
    save(conversation);
    drawList();
  } else if (target.dataset.do === "delete") {
    $("ask-delete-what").textContent = `“${name}” is removed from this browser.`;
    if (!(await open("ask-delete"))) return;
    runs.get(conversation.id)?.stop.abort();
    // What still comes is not to bring it back.
    conversation.messages = [];
    store.remove(conversation.id);
    say("Deleted");
    begin();
  }
});
$("export-all").addEventListener("click", () => download("conversations.json", JSON.stringify(store.all(), null, 2)));

const fileName = (title) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "conversation";

addEventListener("hashchange", route);
store.watch((id) => {
  const changed = id === current.id && !runs.has(id) ? store.all().find((one) => one.id === id) : undefined;
  if (changed) show(changed);
  else drawList();
});

// ---------------------------------------------------------------- the messages

/** Shows the path of messages; elements that are there already stay. */
function draw() {
  const run = runs.get(current.id);
  const messages = tree.path(current);
  const known = new Map([...thread.querySelectorAll(":scope > article")].map((one) => [one.dataset.id, one]));
  const wanted = messages.map((message) => {
    const article = known.get(message.id) ?? look.make(message);
    look.update(article, current, message, chosen()?.id ?? "Model", run?.message === message);
    return article;
  });
  const last = messages.at(-1);
  if (!messages.length) wanted.push(welcome());
  else if (!run && (faults.has(current.id) || last.role === "user")) wanted.push(fault(faults.get(current.id)));
  // Moving an element would take the focus from it.
  for (const old of [...thread.children]) if (!wanted.includes(old)) old.remove();
  wanted.forEach((one, i) => {
    if (thread.children[i] !== one) thread.insertBefore(one, thread.children[i] ?? null);
  });
  const hadFocus = [$("send"), $("stop")].includes(document.activeElement);
  $("send").hidden = Boolean(run);
  $("stop").hidden = !run;
  if (hadFocus) (run ? $("stop") : field).focus();
  thread.setAttribute("aria-busy", String(Boolean(run)));
}

function welcome() {
  const box = document.createElement("p");
  box.className = "welcome faint";
  box.textContent = "Nothing has been said yet.";
  return box;
}

/** Why there is no answer, with all lines of the server, and a way to try again. */
function fault(error) {
  const box = document.createElement("div");
  box.className = "problem";
  const text = document.createElement("p");
  text.textContent = error?.message ?? "This message has no answer.";
  if (error) {
    box.setAttribute("role", "alert");
    const what = document.createElement("p");
    what.className = "status";
    what.textContent = error.status ? `The server refused this (${error.status})` : "No answer";
    box.append(what);
  }
  const again = look.button("again", error?.retryAfter ? `Try again (the server says in ${error.retryAfter} s)` : "Try again");
  again.className = "";
  box.append(text, again);
  return box;
}

const nearEnd = () => thread.scrollHeight - thread.scrollTop - thread.clientHeight < 80;

/** Asks for an answer to `parent`, which is the last message that is shown. */
async function run(conversation, parent) {
  if (runs.has(conversation.id)) return;
  faults.delete(conversation.id);
  const message = tree.add(conversation, parent.id, "assistant", "");
  const one = { conversation, message, stop: new AbortController() };
  runs.set(conversation.id, one);
  const reader = new Reader();
  let timer;
  let saved = performance.now();
  const refresh = () => {
    timer = undefined;
    const start = performance.now();
    if (current === conversation) {
      const follows = nearEnd();
      const article = thread.querySelector(`[data-id="${message.id}"]`);
      if (article) look.update(article, conversation, message, chosen()?.id ?? "Model", runs.get(conversation.id) === one);
      if (follows) thread.scrollTop = thread.scrollHeight;
      reader.hear(message.content, false);
    }
    if (start - saved > 2000) {
      saved = start;
      save(conversation);
    }
    one.pause = Math.max(40, 4 * (performance.now() - start));
  };
  const changed = () => (timer ??= setTimeout(refresh, one.pause ?? 0));
  save(conversation);
  draw();
  drawList();
  thread.scrollTop = thread.scrollHeight;
  let error;
  try {
    const model = models.length > 1 ? chosen().id : undefined;
    await withKey(() => answer(conversation, parent.id, message, one.stop.signal, changed, model));
  } catch (caught) {
    error = caught instanceof Refusal ? caught : new Refusal(0, String(caught));
    if (!caught.status && caught.name !== "AbortError") console.error(caught);
  }
  clearTimeout(timer);
  runs.delete(conversation.id);
  const follows = nearEnd();
  if (error) faults.set(conversation.id, error);
  // An answer that says nothing is none, unless the model meant it.
  if (!message.content && !message.thought && message.finish !== "stop") tree.remove(conversation, message);
  save(conversation);
  if (current === conversation) {
    if (!error) {
      reader.hear(message.content, true);
      say(message.finish === "stopped" ? "Stopped" : "The answer is complete");
    }
    draw();
    if (follows) thread.scrollTop = thread.scrollHeight;
  }
  reader.end();
  drawList();
}

function send(text, parent) {
  if (!text.trim() || runs.has(current.id)) return false;
  if (!fields.checkValidity()) {
    panel("settings", true);
    fields.reportValidity();
    return false;
  }
  const message = tree.add(current, parent, "user", text);
  run(current, message);
  return true;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (send(field.value, current.at)) {
    field.value = "";
    grow(field);
  }
});
field.addEventListener("keydown", (event) => {
  // A method that composes characters ends a word with Enter too.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});
const stop = () => runs.get(current.id)?.stop.abort();
$("stop").addEventListener("click", stop);
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog[open]")) stop();
});

/** As high as its text, where the style sheet alone cannot make it so. */
function grow(area) {
  if (CSS.supports("field-sizing", "content")) return;
  area.rows = Math.min(12, area.value.split("\n").length);
}
field.addEventListener("input", () => grow(field));

thread.addEventListener("click", async ({ target }) => {
  if (target.classList.contains("copy-code")) {
    const code = target.closest(".code").querySelector("pre").textContent;
    return say((await copy(code)) ? "Copied" : "The browser does not let pages copy");
  }
  const what = target.dataset.do;
  const article = target.closest("article");
  const message = article && tree.find(current, article.dataset.id);
  if (what === "again") {
    const last = tree.path(current).at(-1);
    field.focus();
    if (last.role === "user") run(current, last);
    else run(current, tree.find(current, last.parent));
  } else if (what === "copy") {
    const done = await copy(message.content);
    say(done ? "Copied" : "The browser does not let pages copy");
    if (done) flash(target, "Copied");
  } else if (what === "retry" && !runs.has(current.id)) {
    field.focus();
    run(current, tree.find(current, message.parent));
  } else if (what === "back" || what === "on") {
    const all = tree.versions(current, message);
    const other = all[all.indexOf(message) + (what === "on" ? 1 : -1)];
    if (!other) return;
    tree.show(current, other);
    faults.delete(current.id);
    save(current);
    draw();
    // The same button of the version that came instead, or the other, if there is none further.
    const now = thread.querySelector(`[data-id="${other.id}"]`);
    const next = now.querySelector(`[data-do="${what}"]`);
    (next.disabled ? now.querySelector(`[data-do="${what === "on" ? "back" : "on"}"]`) : next).focus();
    const at = all.indexOf(other) + 1;
    say(`Version ${at} of ${all.length}`);
  } else if (what === "edit" && !runs.has(current.id)) {
    edit(article, message);
  }
});

function flash(button, text) {
  const was = button.textContent;
  if (was === text) return;
  button.textContent = text;
  setTimeout(() => (button.textContent = was), 1500);
}

/** Lets a message of the user be changed; what follows it begins anew. */
function edit(article, message) {
  const [, text, , actions] = article.children;
  const form = document.createElement("form");
  form.className = "edit";
  const area = document.createElement("textarea");
  area.setAttribute("aria-label", "Edit the message");
  area.value = message.content;
  area.rows = Math.min(12, message.content.split("\n").length + 1);
  const sendIt = document.createElement("button");
  sendIt.textContent = "Send";
  const cancel = look.button("cancel", "Cancel");
  form.append(area, sendIt, cancel);
  const end = () => {
    form.remove();
    text.hidden = false;
    actions.hidden = false;
  };
  const leave = () => {
    end();
    actions.querySelector('[data-do="edit"]')?.focus();
  };
  cancel.addEventListener("click", leave);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      leave();
    } else if (event.key === "Enter" && event.target === area && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!send(area.value, message.parent)) return;
    end();
    field.focus();
  });
  text.hidden = true;
  actions.hidden = true;
  text.after(form);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

// ---------------------------------------------------------------- settings and panels

fields.addEventListener("submit", (event) => event.preventDefault());
fields.addEventListener("input", () => {
  const settings = {};
  if (current.settings.model) settings.model = current.settings.model;
  if (fields.elements.system.value) settings.system = fields.elements.system.value;
  for (const name of tree.NUMBERS) {
    const { value, validity } = fields.elements[name];
    if (value !== "" && validity.valid) settings[name] = Number(value);
  }
  current.settings = settings;
  store.saveSettings(settings);
  save(current);
});
$("models").addEventListener("change", () => {
  current.settings = { ...current.settings, model: $("models").value };
  store.saveSettings(current.settings);
  save(current);
  nameModel();
});
$("reset").addEventListener("click", () => {
  fields.reset();
  fields.dispatchEvent(new Event("input"));
  say("All settings are the model’s defaults");
});
$("key-change").addEventListener("click", async () => {
  $("ask-key-why").textContent = "It is kept until this tab is closed. Leave it empty if the server wants none.";
  $("key").value = key();
  if (!(await open("ask-key"))) return;
  setKey($("key").value.trim());
  meet();
});

/** Opens or closes a panel. Where the page is narrow, one takes the place of the messages, and of the other. */
function panel(name, isOpen) {
  const other = name === "list" ? "settings" : "list";
  if (isOpen && innerWidth < 800) panel(other, false);
  $(`${name}-toggle`).setAttribute("aria-expanded", String(isOpen));
  document.body.classList.toggle(`${name}-open`, isOpen);
  if (name === "settings") $("settings").hidden = !isOpen;
}
for (const name of ["list", "settings"]) {
  $(`${name}-toggle`).addEventListener("click", (event) => {
    panel(name, event.currentTarget.getAttribute("aria-expanded") !== "true");
  });
}

addEventListener("pagehide", () => runs.forEach(({ conversation }) => save(conversation)));

route();
meet();
field.focus();
