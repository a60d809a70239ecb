"""The page that `flexmdm demo maze` leaves behind: one HTML file with everything in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from flexmdm.evaluation.intervals import wilson
from flexmdm.reports import svg
from flexmdm.reports.svg import MODEL_COLOURS, Growth
from flexmdm.sweeps.maze import Plans
from flexmdm.tasks.maze import Maze

NAMES = {"flexmdm": "FlexMDM", "mdm": "MDM"}
STRIP = 8  # frames of the film strip
SHOWN = 2  # problems shown for each number of subgoals


@dataclass(frozen=True)
class Rate:
    """How many of ``num`` problems were solved, with the 95% interval of their share."""

    successes: int
    num: int

    @property
    def share(self) -> float:
        return self.successes / self.num

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.successes, self.num)

    def __str__(self) -> str:
        return f"{self.share:.1%} ({self.interval[0]:.1%} - {self.interval[1]:.1%})"


@dataclass(frozen=True)
class Contender:
    """One model: how it was trained, and what it planned for each number of subgoals.

    Attributes:
        model: ``flexmdm`` or ``mdm``.
        sampler: how it plans, in words.
        parameters, steps, seconds: of its network and training.
        log: of its training, as `read_log` gives it.
        plans: one entry for each number of subgoals.
    """

    model: str
    sampler: str
    parameters: int
    steps: int
    seconds: float
    log: Sequence[Mapping[str, float]]
    plans: Sequence[Plans]

    @property
    def name(self) -> str:
        return NAMES[self.model]

    @property
    def rates(self) -> dict[int, Rate]:
        return {plans.score.subgoals: Rate(int(plans.success.sum()), len(plans.paths)) for plans in self.plans}

    @property
    def overall(self) -> Rate:
        rates = self.rates.values()
        return Rate(sum(rate.successes for rate in rates), sum(rate.num for rate in rates))

    @property
    def evaluations(self) -> float:
        return sum(plans.score.evaluations for plans in self.plans) / len(self.plans)

    @property
    def lengths(self) -> list[int]:
        return [len(path) for plans in self.plans for path in plans.paths]


@dataclass(frozen=True)
class Story:
    """What the page tells.

    Attributes:
        maze: the maze.
        contenders: FlexMDM, then MDM.
        growths: how each came to its answer to one problem, by model.
        held_out: shares of the lengths of the held-out paths that the problems are made from.
        longest: cells of the longest path there is, so masks of an MDM.
        training_paths: how many were learned from.
        minutes: of training, each.
        facts: more to know, as names and values.
        command: what made the page.
    """

    maze: Maze
    contenders: Sequence[Contender]
    growths: Mapping[str, Growth]
    held_out: Mapping[int, float]
    longest: int
    training_paths: int
    minutes: float
    facts: Mapping[str, str]
    command: str


def page_of(story: Story) -> str:
    """The whole page."""
    sections = [
        _opening(story),
        _growth(story),
        _success(story),
        _plans(story),
        _lengths(story),
        _losses(story),
        _facts(story),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>FlexMDM plans through a maze</title>\n"
        f'<link rel="icon" href="data:,">\n<style>{CSS}</style>\n</head>\n<body>\n'
        f"{svg.maze_symbol(story.maze)}\n<main>\n{chr(10).join(sections)}\n</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


# The sections, from top to bottom -------------------------------------------------------------------------------------


def _opening(story: Story) -> str:
    cards = "".join(
        f'<div class="card" style="--tint:{MODEL_COLOURS[c.model]}"><span class="who">{c.name}</span>'
        f'<span class="big">{c.overall.share:.0%}</span><span class="soft">of {c.overall.num:,} held-out problems '
        f"solved<br>{c.evaluations:.0f} looks at the network per path</span></div>"
        for c in story.contenders
    )
    size = story.maze.size
    return f"""<header>
<p class="kicker">flexmdm demo maze</p>
<h1>A path grows between its subgoals</h1>
<p class="lead">Two small networks learned this {size} × {size} maze from {story.training_paths:,} example paths, in
{_minutes(story.minutes)}, side by side, one CPU core each. Nobody showed them the walls. Now each has to connect
subgoals that it has not met together before, from the first to the last, by legal moves only.</p>
<div class="cards">{cards}</div>
</header>"""


def _growth(story: Story) -> str:
    panels = []
    words = {
        "flexmdm": "starts from the subgoals alone. Where cells are missing it <b>inserts masks</b> (grey), and it "
        "<b>reveals</b> masks as cells, in any order. The length of the path comes out on the way.",
        "mdm": f"gets the subgoals and a row of {story.longest} masks, as many as the longest path has cells. It only "
        "reveals: each mask becomes the cell at exactly this place of the path, or padding (white).",
    }
    for contender in story.contenders:
        growth, name = story.growths[contender.model], contender.name
        panels.append(
            f'<div class="panel" style="--tint:{MODEL_COLOURS[contender.model]}"><h3>{name}</h3>'
            f"<p>{words[contender.model]}</p>"
            f"{svg.maze_stage(story.maze, growth, f'The maze with what {name} has revealed of its path so far')}"
            f"{svg.sequence_stage(growth, f'The sequence of {name}: a box for each cell or mask')}"
            f'<p class="status soft" aria-hidden="true">&nbsp;</p></div>'
        )
    last = story.growths["flexmdm"].frames - 1
    return f"""<section id="growth"><h2>How a path comes about</h2>
<div class="player" hidden>
<div class="controls"><button type="button">Play</button>
<input type="range" min="0" max="{last}" value="{last}" step="1" aria-label="Step of generation"></div>
<div class="pair">{"".join(panels)}</div>
</div>
<h3>The same growth, frame by frame</h3>
<p>FlexMDM from left to right. A mask has no cell yet, so it stands only in the sequence below the maze; what is new
in a frame has a dark edge. Colours run from the start of the path (blue) to its goal (yellow).</p>
{_strip(story)}
</section>"""


def _strip(story: Story) -> str:
    growth = story.growths["flexmdm"]
    count = min(STRIP, growth.frames)
    frames = [round(i * (growth.frames - 1) / max(count - 1, 1)) for i in range(count)]
    parts, before = [], -1
    for frame in frames:
        boxes = growth.there(frame)
        masks = sum(box.shown > frame for box in boxes)
        text = f"Step {frame}: {_count(len(boxes) - masks, 'cell')}, {_count(masks, 'mask')}"
        parts.append(
            f"<figure>{svg.maze_at(story.maze, growth, frame, f'Maze at step {frame}, with the cells revealed so far')}"
            f"{svg.sequence_at(growth, frame, before, f'Sequence at step {frame}: {text}')}"
            f"<figcaption>{text}</figcaption></figure>"
        )
        before = frame
    return f'<div class="strip">{"".join(parts)}</div>'


def _success(story: Story) -> str:
    flex, mdm = story.contenders
    rows = [(f"{k} subgoals", flex.rates[k], mdm.rates[k]) for k in flex.rates]
    rows.append(("all", flex.overall, mdm.overall))
    body = "".join(
        f'<tr{" class=total" if name == "all" else ""}><th scope="row">{name}</th>{_cell(one, "flexmdm")}'
        f"{_cell(other, 'mdm')}</tr>"
        for name, one, other in rows
    )
    num = flex.overall.num // len(flex.rates)
    return f"""<section id="success"><h2>Who gets there</h2>
<p>A plan is a success if it goes from the first subgoal to the last, passes all others in their order, and every move
is to a neighbouring open cell. Start and goal are pairs that training never saw; {num:,} problems for each number of
subgoals. In brackets, and as a line in each bar, the 95% interval.</p>
<div class="wide"><table><thead>
<tr><th scope="col">problems</th><th scope="col">FlexMDM</th><th scope="col">MDM</th></tr>
</thead><tbody>{body}</tbody></table></div>
<p class="soft">Both had the same network, recipe and time. FlexMDM planned with {escape(flex.sampler)}; MDM with
{escape(mdm.sampler)}.</p></section>"""


def _cell(rate: Rate, model: str) -> str:
    low, high = rate.interval
    return (
        f'<td>{svg.rate_bar(rate.share, low, high, MODEL_COLOURS[model])}<span class="value">{rate.share:.1%}</span> '
        f'<span class="soft">({low:.1%} – {high:.1%})</span></td>'
    )


def _plans(story: Story) -> str:
    flex, mdm = story.contenders
    pairs = []
    for one, other in zip(flex.plans, mdm.plans, strict=True):
        for number in range(min(SHOWN, len(one.problems))):
            pairs.append(
                f'<div class="duel"><p class="soft">{one.score.subgoals} subgoals</p>'
                f"{_plan(story, flex, one, number)}{_plan(story, mdm, other, number)}</div>"
            )
    return f"""<section id="plans"><h2>The same problems, planned by both</h2>
<p>The first {SHOWN} problems of each kind, as they came. Red is what the maze does not allow: dashed lines are moves
that are none, crosses are cells inside walls, red rings are subgoals that the path misses.</p>
<div class="duels">{"".join(pairs)}</div></section>"""


def _plan(story: Story, contender: Contender, plans: Plans, number: int) -> str:
    path, subgoals, success = plans.paths[number], plans.problems[number], bool(plans.success[number])
    verdict = "reaches every subgoal in order" if success else "fails"
    label = f"{contender.name}: a path of {len(path)} cells through {len(subgoals)} subgoals, which {verdict}"
    mark = '<b class="good">✓</b>' if success else '<b class="bad">✗ fails</b>'
    return (
        f'<figure class="{"" if success else "failed"}">{svg.maze_with(story.maze, path, subgoals, label)}'
        f"<figcaption>{contender.name}, {len(path)} cells {mark}</figcaption></figure>"
    )


def _lengths(story: Story) -> str:
    charts = []
    truth = sum(n * share for n, share in story.held_out.items())
    for contender in story.contenders:
        lengths = contender.lengths
        mean = sum(lengths) / len(lengths)
        label = f"Lengths of the paths of {contender.name}: {mean:.1f} cells on average, held-out paths {truth:.1f}"
        chart = svg.length_chart(lengths, story.held_out, MODEL_COLOURS[contender.model], label)
        charts.append(
            f"<figure>{chart}<figcaption><b style='color:{MODEL_COLOURS[contender.model]}'>{contender.name}</b>: "
            f"{mean:.1f} cells on average; held-out paths (outline): {truth:.1f}</figcaption></figure>"
        )
    return f"""<section id="lengths"><h2>How long the paths are</h2>
<p>Bars are the paths that were planned, successes and failures alike; the outline is the held-out paths that the
problems were taken from. A model that has learned the lengths fills its outline.</p>
<div class="pair">{"".join(charts)}</div></section>"""


def _losses(story: Story) -> str:
    charts = []
    for contender in story.contenders:
        held_out = [line["eval_loss"] for line in contender.log if "eval_loss" in line]
        end = f", {held_out[-1]:.1f} at the end" if held_out else ""
        label = f"Loss of {contender.name} against minutes of training{end}"
        charts.append(
            f"<figure>{svg.loss_chart({contender.model: contender.log}, label)}"
            f"<figcaption><b style='color:{MODEL_COLOURS[contender.model]}'>{contender.name}</b>: {contender.steps:,} "
            f"steps in {_minutes(contender.seconds / 60)}{end}</figcaption></figure>"
        )
    return f"""<section id="loss"><h2>Training</h2>
<p>The loss in nats per sequence: dots are batches, the line is held-out sequences under the averaged weights. The two
do not measure the same thing (MDM's covers the padding, FlexMDM's the insertions), so compare shapes and not heights.
MDM takes fewer steps in the same time because each of its sequences is as long as the longest.</p>
<div class="pair">{"".join(charts)}</div></section>"""


def _facts(story: Story) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in story.facts.items()
    )
    return f"""<section id="facts"><h2>What was run</h2>
<div class="wide"><table class="facts"><tbody>{rows}</tbody></table></div>
<p>Again, or larger: <code>{escape(story.command)}</code>. All figures of this page are in <code>results.json</code>
beside it, both runs in <code>runs/</code>; <code>flexmdm sample</code> lets them plan through cells of your choice. The
method is <a href="https://arxiv.org/abs/2509.01025">Any-Order Flexible Length Masked Diffusion</a>.</p></section>"""


def _count(number: int, thing: str) -> str:
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def _minutes(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f} seconds"
    return "1 minute" if f"{minutes:.1f}" == "1.0" else f"{minutes:.1f} minutes".replace(".0 ", " ")


CSS = """
:root { color-scheme: light; --ink: #1f2933; --soft: #5f6b7a; --line: #e4e7eb; --good: #137a4b; --bad: #c4122a; }
* { box-sizing: border-box; }
body { margin: 0; background: #fbfcfd; color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto,
  "Noto Sans", "DejaVu Sans", sans-serif; -webkit-text-size-adjust: 100%; }
main { max-width: 1120px; margin: 0 auto; padding: 0 24px 64px; }
header { padding: 56px 0 8px; }
h1 { font-size: clamp(28px, 5vw, 44px); line-height: 1.12; letter-spacing: -0.02em; margin: 0 0 16px; }
h2 { font-size: 25px; letter-spacing: -0.01em; margin: 0 0 8px; }
h3 { font-size: 17px; margin: 28px 0 4px; }
p { margin: 0 0 16px; max-width: 74ch; }
.kicker { font: 600 13px ui-monospace, "DejaVu Sans Mono", monospace; color: var(--soft); margin: 0 0 10px; }
.lead { font-size: 19px; max-width: 68ch; }
.soft { color: var(--soft); font-size: 14px; }
section { border-top: 1px solid var(--line); margin-top: 44px; padding-top: 36px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
.symbols { position: absolute; width: 0; height: 0; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: 14px; color: var(--soft); margin-top: 8px; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.9em; background: #eef1f4;
  padding: 1px 5px; border-radius: 4px; overflow-wrap: anywhere; }
a { color: #005a91; }
.cards, .pair { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 24px; }
.cards { margin-top: 28px; max-width: 720px; }
.card { background: #fff; border: 1px solid var(--line); border-left: 6px solid var(--tint); border-radius: 10px;
  padding: 16px 20px; display: flex; flex-direction: column; }
.who { font-weight: 650; color: var(--tint); }
.big { font-size: 46px; font-weight: 700; line-height: 1.15; letter-spacing: -0.02em; }
.panel { background: #fff; border: 1px solid var(--line); border-radius: 12px; padding: 20px 24px; min-width: 0;
  display: flex; flex-direction: column; }
.panel h3 { margin: 0 0 4px; color: var(--tint); }
.panel p { font-size: 15px; }
.panel .maze { max-width: 400px; margin: auto auto 0; }
.panel .sequence { max-width: 460px; margin: 16px auto 0; }
.panel .status { margin: 10px 0 0; text-align: center; font-variant-numeric: tabular-nums; max-width: none; }
.controls { display: flex; gap: 16px; align-items: center; margin: 20px 0; }
.controls input { flex: 1; accent-color: #0072b2; min-width: 0; height: 28px; }
button { font: inherit; font-weight: 600; line-height: 1; color: #fff; background: #0072b2; border: 0;
  border-radius: 8px; padding: 12px 0; width: 122px; cursor: pointer; }
button:hover { background: #005a91; }
button:focus-visible, input:focus-visible, a:focus-visible { outline: 3px solid #f0b400; outline-offset: 2px; }
.move { stroke-width: 3.6; stroke-linecap: round; fill: none; }
.move.wrong { stroke-width: 1.7; stroke-dasharray: 2.2 2.4; }
.cross { stroke: #e0182d; stroke-width: 1.8; stroke-linecap: round; fill: none; }
.number { font-size: 5.2px; font-weight: 700; text-anchor: middle; fill: #1f2933; }
.number.on { fill: #fff; }
.later { opacity: 0; transition: opacity 0.25s; }
.later.here { opacity: 1; }
.box { opacity: 0; transition: transform 0.3s, opacity 0.3s; }
.box.here { opacity: 1; }
.box rect { fill: #c3cad3; transition: fill 0.25s; }
.box.shown rect { fill: var(--cell); }
.box.pad.shown rect { stroke: #aeb7c2; stroke-width: 0.7; }
.strip { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 28px 22px; margin-top: 12px; }
.strip .sequence { margin-top: 8px; }
.duels { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 28px; }
.duel { background: #fff; border: 1px solid var(--line); border-radius: 12px; padding: 12px 16px 14px; display: grid;
  grid-template-columns: 1fr 1fr; gap: 6px 14px; align-content: start; }
.duel p { grid-column: 1 / -1; margin: 0; }
.good { color: var(--good); } .bad { color: var(--bad); white-space: nowrap; }
.failed .maze { outline: 2px solid var(--bad); outline-offset: 1px; border-radius: 3px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: 4px 0 16px; }
th { text-align: left; font-weight: 600; padding: 10px 20px 10px 0; white-space: nowrap; }
thead th { color: var(--soft); font-size: 14px; border-bottom: 1px solid var(--line); }
td { padding: 10px 20px 10px 0; width: 42%; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tr.total > * { border-top: 2px solid var(--ink) !important; }
.value { font-weight: 650; }
.rate { height: 12px; width: 100%; border-radius: 3px; overflow: hidden; margin-bottom: 4px; }
.facts th { vertical-align: top; font-weight: 500; color: var(--soft); padding: 5px 24px 5px 0; }
.facts td { width: auto; padding: 5px 0; } .facts tr + tr > * { border: 0 !important; }
.chart { overflow: visible; } .tick { font-size: 12px; fill: #5f6b7a; } .rule { stroke: #e4e7eb; }
.outline { fill: none; stroke: #1f2933; stroke-width: 1.4; opacity: 0.75; stroke-linejoin: round; }
.curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.dots { stroke-width: 4; stroke-linecap: round; opacity: 0.22; }
@media (max-width: 900px) { .duels { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
@media (max-width: 720px) {
  main { padding: 0 16px 48px; } header { padding-top: 32px; } .lead { font-size: 17px; }
  .pair, .duels { grid-template-columns: minmax(0, 1fr); } .cards { gap: 12px; } .card { padding: 12px 14px; }
  .big { font-size: 36px; } .strip { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px 14px; }
  .panel { padding: 16px; } .tick { font-size: 15px; } th, td { padding-right: 12px; } th { white-space: normal; }
  td .soft { display: block; font-size: 12.5px; }
}
@media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
@media print { .player { display: none; } section { break-inside: avoid; } }
"""

SCRIPT = """
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
      let place = 0, masks = 0, pads = 0;
      boxes.forEach((box, i) => {
        const shown = Number(box.dataset.shown) <= frame;
        box.style.transform = `translateX(${(width - count * size) / 2 + place * size}px)`;
        box.classList.toggle("here", there[i]);
        box.classList.toggle("shown", shown);
        if (there[i]) { place += 1; masks += !shown; pads += shown && box.classList.contains("pad"); }
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
"""
