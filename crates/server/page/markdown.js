// Markdown as DOM nodes. A text of a model is data: only the elements made here can come of it, and every piece of text gets in
// as `textContent`. Nothing is fetched, and links leave the page only if a person follows them.

import { lexer } from "./vendor/marked.esm.js";

/** Elements within elements. What is deeper is shown as it was written: layout recurses, and a model can nest without end. */
const DEPTH = 24;
/** What is longer is shown as it was written. */
const LENGTH = 400_000;
const SCHEMES = ["http:", "https:", "mailto:"];

const drawn = new WeakMap();

/** Shows `text` in `into`. Blocks that have not changed since the last time keep their elements, and so focus and selection. */
export function show(into, text) {
  const blocks = read(text);
  const was = drawn.get(into) ?? [];
  let same = 0;
  while (same < was.length && same < blocks.length && was[same] === blocks[same].source) same += 1;
  while (into.childNodes.length > same) into.lastChild.remove();
  for (const { token } of blocks.slice(same)) into.append(block(token, 0));
  drawn.set(into, blocks.map(({ source }) => source));
}

function read(text) {
  let tokens = null;
  if (text.length <= LENGTH) {
    try {
      tokens = lexer(text, { gfm: true, breaks: true });
    } catch {
      // Nested deeper than the lexer's stack.
    }
  }
  if (!tokens) return [{ token: { type: "html", text, raw: text }, source: text }];
  // A definition far below changes links above.
  const links = Object.keys(tokens.links ?? {}).length;
  return tokens
    .filter((token) => token.type !== "space" && token.type !== "def")
    .map((token) => ({ token, source: `${links} ${token.raw}` }));
}

function element(name, children = [], attributes = {}) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The text as it was written. */
const verbatim = (text) => element("p", [text], { class: "verbatim" });

const blocks = (tokens, depth) =>
  (tokens ?? []).filter((token) => token.type !== "space" && token.type !== "def").map((token) => block(token, depth));
const inlines = (tokens, depth) => (tokens ?? []).map((token) => inline(token, depth));

function block(token, depth) {
  if (depth > DEPTH) return verbatim(token.raw);
  const inner = depth + 1;
  switch (token.type) {
    case "paragraph":
      return element("p", inlines(token.tokens, inner));
    // The text of an item of a tight list, which is no paragraph.
    case "text":
      return element("span", token.tokens ? inlines(token.tokens, inner) : [decoded(token.text)]);
    // The page's own headings come before: one is the page's, two are who speaks.
    case "heading":
      return element(`h${Math.min(token.depth + 2, 6)}`, inlines(token.tokens, inner));
    case "code":
      return code(token);
    case "blockquote":
      return element("blockquote", blocks(token.tokens, inner));
    case "list":
      return list(token, inner);
    case "table":
      return table(token, inner);
    case "hr":
      return element("hr");
    case "checkbox":
      return element("span", [token.checked ? "☑ " : "☐ "], { role: "img", "aria-label": token.checked ? "done" : "to do" });
    default:
      return verbatim(token.text ?? token.raw);
  }
}

function list(token, depth) {
  const items = token.items.map((item) => element("li", blocks(item.tokens, depth), item.task ? { class: "task" } : {}));
  const start = token.ordered && Number(token.start) !== 1 ? { start: Number(token.start) } : {};
  return element(token.ordered ? "ol" : "ul", items, start);
}

function table(token, depth) {
  const cell = (name) => (of) => {
    const made = element(name, inlines(of.tokens, depth), name === "th" ? { scope: "col" } : {});
    if (of.align) made.classList.add(of.align);
    return made;
  };
  const head = element("thead", [element("tr", token.header.map(cell("th")))]);
  const body = element("tbody", token.rows.map((row) => element("tr", row.map(cell("td")))));
  // It scrolls by itself where it is wider than the page, and so must take the focus of a keyboard.
  return element("div", [element("table", [head, body])], { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" });
}

function code(token) {
  const language = (token.lang ?? "").split(/\s/)[0].slice(0, 40);
  const copy = element("button", ["Copy"], { type: "button", class: "plain copy-code", "aria-label": "Copy the code" });
  const pre = element("pre", [element("code", [token.text])], { tabindex: "0", role: "region", "aria-label": `Code ${language}`.trim() });
  return element("div", [element("div", [element("span", [language]), copy], { class: "code-head" }), pre], { class: "code" });
}

function inline(token, depth) {
  if (depth > DEPTH) return document.createTextNode(token.raw);
  const children = () => inlines(token.tokens, depth + 1);
  switch (token.type) {
    case "strong":
    case "em":
    case "del":
      return element(token.type, children());
    case "codespan":
      return element("code", [token.text]);
    case "br":
      return element("br");
    case "escape":
      return document.createTextNode(token.text);
    case "text":
      return token.tokens ? element("span", children()) : document.createTextNode(decoded(token.text));
    case "link":
      return link(token.href, children(), token.raw);
    // To show it would be to fetch it, and tell a stranger's server that it is being read.
    case "image":
      return link(token.href, [`image: ${token.text || token.href}`], token.raw);
    case "checkbox":
      return block(token, depth);
    default:
      return document.createTextNode(token.raw);
  }
}

function link(href, children, raw) {
  let url;
  try {
    // Without a base: what is relative would point into this server.
    url = new URL(decoded(href));
  } catch {
    return document.createTextNode(raw);
  }
  if (!SCHEMES.includes(url.protocol)) return document.createTextNode(raw);
  return element("a", children, { href: url.href, rel: "noopener noreferrer", target: "_blank", title: url.href });
}

const entities = new Map();

/** The text with its character references, such as `&amp;`, as characters. */
function decoded(text) {
  return text.replace(/&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,31});/gi, (name) => {
    if (!entities.has(name)) {
      // One reference alone, which can be no element.
      entities.set(name, new DOMParser().parseFromString(name, "text/html").body.textContent);
    }
    return entities.get(name);
  });
}
