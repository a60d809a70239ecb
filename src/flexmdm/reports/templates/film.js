"use strict";
(() => {
  const player = document.querySelector(".player");
  const button = player.querySelector("button"), slider = player.querySelector("input");
  const panels = [...player.querySelectorAll(".panel")].map(panel => ({
    boxes: [...panel.querySelectorAll(".box")], later: [...panel.querySelectorAll(".later")],
    width: panel.querySelector(".stage").viewBox.baseVal.width, status: panel.querySelector(".status"),
  }));
  const last = Number(slider.max), size = 10;
  let timer = null;

  function show(frame) {
    slider.value = frame;
    slider.setAttribute("aria-valuetext", `step ${frame} of ${last}`);
    for (const { boxes, later, width, status } of panels) {
      for (const part of later) part.classList.toggle("here", Number(part.dataset.shown) <= frame);
      const there = boxes.map(box => Number(box.dataset.born) <= frame);
      const count = there.filter(Boolean).length;
      let index = 0, masks = 0, pads = 0;
      boxes.forEach((box, i) => {
        const shown = Number(box.dataset.shown) <= frame;
        box.style.transform = `translateX(${(width - count * size) / 2 + index * size}px)`;
        box.classList.toggle("here", there[i]);
        box.classList.toggle("shown", shown);
        if (there[i]) { index += 1; masks += !shown; pads += shown && box.classList.contains("pad"); }
      });
      const cells = count - masks - pads;
      const padding = pads ? `, ${pads} padding` : "";
      status.textContent = `step ${frame} of ${last}: ${cells} cells, ${masks} masks${padding}`;
    }
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    button.textContent = Number(slider.value) === last ? "Play again" : "Play";
  }
  function play() {
    if (Number(slider.value) === last) show(0);
    button.textContent = "Pause";
    timer = setInterval(() => {
      show(Number(slider.value) + 1);
      if (Number(slider.value) === last) stop();
    }, Math.min(600, 12000 / last));
  }
  button.addEventListener("click", () => timer ? stop() : play());
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); stop(); });
  player.hidden = false;
  show(last);
  stop();
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    new IntersectionObserver((seen, watch) => {
      if (seen[0].isIntersecting) { watch.disconnect(); if (!timer) play(); }
    }, { threshold: 0.6 }).observe(player.querySelector(".maze"));
  }
})();
