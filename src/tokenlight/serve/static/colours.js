// The library's two colours, which colour-blind people tell apart, for a light and for a dark page.

const THEMES = {
  light: {
    paper: [255, 255, 255],
    support: [33, 102, 172],
    against: [204, 85, 0],
    more: [0, 120, 60],
    less: [190, 30, 45],
  },
  dark: {
    paper: [22, 27, 34],
    support: [92, 160, 225],
    against: [240, 136, 62],
    more: [63, 170, 106],
    less: [240, 98, 104],
  },
};

export const HEAT = ["support", "against"];
export const DIFFERENCE = ["more", "less"];

/** Paper at 0, the full colour at -1 and 1. */
export function shade(strength, sides = HEAT, theme = "light") {
  const { paper, [strength >= 0 ? sides[0] : sides[1]]: colour } = THEMES[theme];
  const share = Math.min(1, Math.abs(strength));
  return paper.map((part, i) => Math.round(part + (colour[i] - part) * share));
}

/** Black or white, whichever can be read better on it (WCAG's relative luminance). */
export function ink(background) {
  const [red, green, blue] = background.map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? [0, 0, 0] : [255, 255, 255];
}

export function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

/** Give an element its shade for both themes; style.css picks one, so that a change of theme needs no redrawing. */
export function paint(element, strength, sides = HEAT) {
  for (const theme of Object.keys(THEMES)) {
    const background = shade(strength, sides, theme);
    element.style.setProperty(`--${theme}-shade`, css(background));
    element.style.setProperty(`--${theme}-ink`, css(ink(background)));
  }
}
