// Makes elements. Text is always set as text, never as HTML.

/** An element with attributes (class, data-..., onclick, ...) and children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** 0.1234 as 12.3 %, and 0.000123 as 0.012 %. */
export function percent(share) {
  const digits = share >= 0.01 || share === 0 ? (100 * share).toFixed(1) : (100 * share).toPrecision(2);
  return `${Number(digits) < 0.001 ? 0 : digits} %`;
}

/** 0.1234 as 12 %. */
export function whole(share) {
  return share < 0.005 ? "< 1 %" : `${(100 * share).toFixed(0)} %`;
}

/** A bar whose length is a share of its cell. */
export function bar(share) {
  const element = make("span", { class: "bar", "aria-hidden": "true" });
  element.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element;
}
