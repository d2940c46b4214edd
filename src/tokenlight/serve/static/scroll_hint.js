// Content wider than its box fades out at the side to which it can be scrolled.

export function hintAtMore(box) {
  const look = () => {
    const hidden = box.scrollWidth - box.clientWidth;
    const scrolled = Math.abs(box.scrollLeft); // negative where texts run from right to left
    box.classList.toggle("has-more", hidden - scrolled > 1);
    box.classList.toggle("has-less", hidden > 1 && scrolled > 1);
    box.tabIndex = hidden > 1 ? 0 : -1; // focusable, so that arrow keys scroll it
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  new MutationObserver(look).observe(box, { childList: true, subtree: true });
  look();
}
