// Asks the server. The address of the page holds the token, so paths are relative to it.

/** The answer to a question, or an Error with the server's line. */
export async function ask(name, fields = {}) {
  let response;
  try {
    response = await fetch(`api/${name}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(fields),
    });
  } catch {
    throw new Error("The server does not answer. Is the command still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answered ${response.status}.`);
  return answer;
}

const message = document.getElementById("message");

/** Show a line above the view; an empty one removes it. */
export function say(text) {
  message.textContent = text;
}

/** Do something that asks the server, with its button disabled. Its error is shown. */
export async function attempt(work, button = null) {
  say("");
  if (button) button.disabled = true;
  document.body.setAttribute("aria-busy", "true");
  try {
    return await work();
  } catch (error) {
    say(error.message);
    return null;
  } finally {
    document.body.removeAttribute("aria-busy");
    if (button) button.disabled = false;
  }
}
