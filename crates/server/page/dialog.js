// Questions that wait for an answer.

/** Shows a dialog. Resolves to true if it was confirmed; the focus goes back to where it was. */
export function open(id) {
  const dialog = document.getElementById(id);
  const form = dialog.querySelector("form");
  return new Promise((resolve) => {
    let confirmed = false;
    const submitted = (event) => {
      event.preventDefault();
      confirmed = true;
      dialog.close();
    };
    const cancelled = () => dialog.close();
    form.addEventListener("submit", submitted);
    form.querySelector(".cancel").addEventListener("click", cancelled);
    dialog.addEventListener(
      "close",
      () => {
        form.removeEventListener("submit", submitted);
        form.querySelector(".cancel").removeEventListener("click", cancelled);
        resolve(confirmed);
      },
      { once: true },
    );
    dialog.showModal();
  });
}

/** Offers `text` as a file. */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Puts `text` on the clipboard. Returns whether it is there. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages of plain HTTP from another machine have no clipboard but this one.
    const focus = document.activeElement;
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focus?.focus();
    return done;
  }
}
