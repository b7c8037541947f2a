"""The style of every page: light and dark, on a desk, on a phone and on paper."""

STYLE = """\
<style>
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2933; --muted: #5b6770; --line: #dfe4e8;
  --wash: #f5f7f9; --blue: #005a8f; --here: #eaf3f9; --good: #00684e; --alarm: #a63a00;
  --caution: #7a5900; --caution-wash: #fdf7e3; --caution-line: #e3c873; --alarm-wash: #fdf0e9;
  --alarm-line: #e5a98a; --series-blue: #0072b2; --series-vermilion: #d55e00;
  --series-green: #00785a; --series-purple: #8e4a84; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14191e; --ink: #e4e9ed; --muted: #a7b3bc; --line: #3a4650; --wash: #1d242b;
    --blue: #7cc4f0; --here: #1b3142; --good: #5fd3a8; --alarm: #ff9f70; --caution: #e6c25c;
    --caution-wash: #2a2414; --caution-line: #6f5d22; --alarm-wash: #33201a;
    --alarm-line: #8a4a2d; --series-blue: #56b4e9; --series-vermilion: #ff8f4d;
    --series-green: #3ecf9f; --series-purple: #d99ccb; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.6rem 1.5rem 4rem; max-width: 61rem; background: var(--paper);
  color: var(--ink); line-height: 1.55; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
a { color: var(--blue); }
a.anchor { color: var(--muted); font-weight: 400; text-decoration: none; opacity: 0; }
a.anchor:focus, :hover > a.anchor { opacity: 1; }
.skip { position: absolute; left: -99rem; padding: .5rem 1rem; background: var(--paper); }
.skip:focus { left: 1rem; top: 1rem; z-index: 1; }
:focus-visible { outline: 3px solid var(--blue); outline-offset: 2px; }
main:focus { outline: none; }
[id] { scroll-margin-top: 1rem; }
header .kind { color: var(--muted); font-size: .85rem; letter-spacing: .06em;
  text-transform: uppercase; margin: 0; }
h1 { font-size: 2rem; line-height: 1.2; margin: .1rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.8rem 0 .3rem; }
h4 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
h2, h3, h4, p, li, figcaption { overflow-wrap: break-word; }
p { margin: .6rem 0; max-width: 46rem; }
.meta { color: var(--muted); font-size: .9rem; }
.contents { margin: 1rem 0; font-size: .92rem; }
.contents ul { list-style: none; margin: .3rem 0; padding: 0; }
.contents li { margin: .3rem 0; line-height: 1.35; }
.contents .level-3 { padding-left: 1rem; font-size: .94em; }
.contents a { text-decoration: none; }
.contents a:hover { text-decoration: underline; }
.verdict { margin: 1rem 0; padding: .9rem 1.3rem; background: var(--wash);
  border-left: 5px solid var(--blue); border-radius: 0 6px 6px 0; }
.verdict.alarm { border-color: var(--alarm); }
.verdict p { font-size: 1.12rem; line-height: 1.45; margin: 0; max-width: none; }
.verdict .release { font-weight: 650; }
.verdict p + p { margin-top: .4rem; font-size: 1rem; }
.label { margin: .6rem 0; padding: .7rem 1rem; border-radius: 6px;
  border: 1px solid var(--caution-line); background: var(--caution-wash); }
.label strong { color: var(--caution); }
.label.alarm { border-color: var(--alarm-line); background: var(--alarm-wash); }
.label.alarm strong { color: var(--alarm); }
.table, .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0 1rem; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .9rem .5rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { color: var(--muted); font-size: .82rem; border-bottom: 2px solid var(--line); }
td.value { font-weight: 600; }
td.limit, td.value { font-variant-numeric: tabular-nums; min-width: 3.5rem; }
.compact { width: auto; font-size: .85rem; font-variant-numeric: tabular-nums; }
.compact th, .compact td { padding: .15rem 1.1rem .15rem 0; }
.compact tbody th { font-weight: 400; }
td small, th small { display: block; font-weight: 400; color: var(--muted); }
tr.here { background: var(--here); }
tr.here th { padding-left: .5rem; }
.mark { font-weight: 600; }
.mark.good { color: var(--good); }
.mark.alarm { color: var(--alarm); }
.mark.open { color: var(--muted); }
.mark.caution { color: var(--caution); }
dl { display: grid; grid-template-columns: minmax(9rem, 13rem) 1fr; margin: .4rem 0 1rem;
  font-size: .93rem; }
dt, dd { margin: 0; padding: .3rem 0; border-bottom: 1px solid var(--line); }
dt { color: var(--muted); padding-right: .8rem; }
.settings { grid-template-columns: repeat(2, minmax(8rem, 11rem) 1fr); }
.settings .long { grid-column: 1; }
.settings .long + dd { grid-column: 2 / -1; }
dd { overflow-wrap: anywhere; padding-right: .8rem; }
figure { margin: 1.8rem 0; }
figure svg, figure img { display: block; width: 100%; min-width: 34rem; height: auto; }
figure svg text { font-family: inherit !important; }
.plate { background: #fff; }
figcaption { color: var(--muted); font-size: .92rem; max-width: 46rem; margin-bottom: .5rem; }
figcaption strong { color: var(--ink); }
.first { display: grid; gap: 0 2rem; grid-template-columns: minmax(0, 1fr); }
.first h2 { font-size: 1.02rem; margin: 1rem 0 .3rem; padding: 0; border: 0; }
.first figure { margin: .6rem 0; }
.first table { margin: .2rem 0; font-size: .88rem; }
.first th, .first td { padding: .3rem .7rem .3rem 0; }
.first ul { margin: .2rem 0; padding: 0; list-style: none; font-size: .93rem; }
.first li { margin: .3rem 0; line-height: 1.4; }
.first-told code { display: block; color: var(--muted); font-size: .8em; }
figure .target img { width: 9rem; min-width: 0; image-rendering: pixelated; }
.bar p { margin: .5rem 0 .1rem; line-height: 1.35; font-size: .93rem; }
figure svg.bars { min-width: 0; max-width: none; height: 22px; font-size: 12px;
  overflow: visible; }
.bar + svg.bars { height: 34px; }
.bars .track { fill: var(--wash); stroke: var(--line); }
.bars .allowed { fill: var(--line); }
.bars .measured { fill: var(--series-blue); }
.bars line { stroke: var(--ink); stroke-width: 1.5; }
.bars .limit { stroke-width: 4; }
.bars text { fill: var(--muted); }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--blue); }
summary h2 { display: inline; border: 0; }
#specialists { margin-top: 2.8rem; padding-top: .9rem; border-top: 1px solid var(--line); }
figure details { font-size: .92rem; margin: .3rem 0; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .88em;
  overflow-wrap: anywhere; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--muted); font-size: .88rem; }
@media (max-width: 48rem) {
  body { padding: 1.2rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  .stacked thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px;
    overflow: hidden; }
  .stacked, .stacked tbody { display: block; }
  .stacked tr { display: flex; flex-wrap: wrap; column-gap: 1.1rem; padding: .6rem 0;
    border-bottom: 1px solid var(--line); }
  .stacked th, .stacked td { border: 0; padding: .1rem 0; min-width: 0; overflow-wrap: anywhere; }
  .stacked th { flex: 0 0 100%; }
  .stacked td small { display: inline; margin-left: .4rem; }
  .stacked [data-label]:not([data-label=""])::before { content: attr(data-label) ": ";
    color: var(--muted); font-weight: 400; }
  dl, .settings { grid-template-columns: minmax(0, 1fr); }
  .settings .long + dd { grid-column: 1; }
  dt { border: 0; padding-bottom: 0; }
  dd { padding-top: 0; }
}
@media screen and (max-width: 36rem) {
  figure .scroll::before { content: "Scroll sideways to see the whole figure.";
    color: var(--muted); font-size: .82rem; }
}
@media screen and (min-width: 60rem) {
  .first:has(> .first-shown + .first-told) {
    grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); }
  .first-table { grid-column: 1 / -1; }
}
@media screen and (min-width: 76rem) {
  body:has(> .contents) { display: grid; grid-template-columns: 14rem minmax(0, 56rem);
    max-width: none; justify-content: center; column-gap: 2.5rem; }
  body:has(> .contents) > :not(.contents, .skip) { grid-column: 2; }
  .contents { grid-column: 1; grid-row: 1 / span 3; margin: 0; }
  .contents details { position: sticky; top: 1.5rem; max-height: calc(100vh - 3rem);
    overflow-y: auto; margin: 0; }
  @supports selector(::details-content) {
    .contents summary { list-style: none; color: var(--muted); pointer-events: none; }
    .contents details::details-content { content-visibility: visible; display: block; }
  }
}
@media print {
  @page { size: A4; margin: 14mm; @bottom-right { content: counter(page) " / " counter(pages);
    font: 8pt sans-serif; color: #5b6770; } }
  :root { font-size: 9.2pt; }
  body { font-size: 1rem; max-width: none; padding: 0; }
  figure svg, figure img { max-width: 12.5cm; min-width: 0; }
  .verdict, .label, tr.here { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2, h3, h4, summary, figcaption { break-after: avoid; }
  .scroll, figcaption, tr, .verdict, .label { break-inside: avoid; }
  .skip, a.anchor, .contents { display: none; }
  .table, .scroll { overflow: visible; }
  table { font-size: 8.5pt; }
  th, td { overflow-wrap: break-word; padding-right: .6rem; }
  td.value, td.limit { min-width: 0; }
  .compact, details table { font-size: 7pt; }
  details th, details td { padding-right: .3rem; white-space: normal; overflow-wrap: anywhere; }
  summary { color: var(--muted); }
  summary::after { content: " (folded: unfold it to print it)"; }
}
</style>"""
