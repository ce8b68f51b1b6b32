// What a screen reader hears of an answer: each part once, when it is complete, and not each change of the page.

const [live, status] = [document.getElementById("live"), document.getElementById("said")];

/** Says a short word on what has happened. */
export function say(text) {
  // The same text again is a change too.
  status.textContent = "";
  setTimeout(() => (status.textContent = text), 50);
}

/** Reads an answer aloud as it grows. */
export class Reader {
  #at = 0;

  constructor() {
    live.replaceChildren();
  }

  /** Takes the answer so far; says its lines that are complete, or all of it at its end. */
  hear(content, isEnd) {
    const rest = content.slice(this.#at);
    // A sentence at least, so that a long paragraph need not be waited for.
    const sentence = /[\s\S]*(?:[.!?:;](?=\s)|\n)/.exec(rest);
    const part = isEnd ? rest : (sentence?.[0] ?? "");
    if (!part.trim()) return;
    this.#at += part.length;
    const line = document.createElement("p");
    line.textContent = part.replace(/[*_`#>|]+/g, " ").replace(/\s+/g, " ").trim();
    live.append(line);
  }

  /** Leaves nothing behind that would be found twice by who reads the page. */
  end() {
    const lines = [...live.children];
    setTimeout(() => lines.forEach((line) => line.remove()), 5000);
  }
}
