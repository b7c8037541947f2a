"""The look of every page, which needs no other file, script or network."""

STYLE = """\
<style>
:root { --ink: #1f2933; --muted: #5b6770; --line: #dfe4e8; --wash: #f5f7f9; --blue: #005a8f;
  --good: #00684e; --alarm: #a63a00; --caution: #7a5900; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink); line-height: 1.55; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 58rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
header .kind { color: var(--muted); font-size: .85rem; letter-spacing: .06em;
  text-transform: uppercase; margin: 0; }
h1 { font-size: 2rem; line-height: 1.2; margin: .1rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
p { margin: .6rem 0; max-width: 46rem; }
.meta { color: var(--muted); font-size: .9rem; }
.verdict { margin: 1.6rem 0 1rem; padding: 1.2rem 1.4rem; background: var(--wash);
  border-left: 5px solid var(--blue); border-radius: 0 6px 6px 0; }
.verdict.alarm { border-color: var(--alarm); }
.verdict p { font-size: 1.16rem; line-height: 1.5; margin: 0; }
.verdict p + p { margin-top: .7rem; font-size: 1rem; }
.label { margin: .6rem 0; padding: .7rem 1rem; border-radius: 6px; border: 1px solid #e3c873;
  background: #fdf7e3; }
.label strong { color: var(--caution); }
.label.alarm { border-color: #e5a98a; background: #fdf0e9; }
.label.alarm strong { color: var(--alarm); }
.label ul { margin: .2rem 0 0; padding-left: 1.2rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0 1rem; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .5rem .9rem .5rem 0;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
thead th { color: var(--muted); font-size: .82rem; border-bottom: 2px solid var(--line); }
td.value { font-variant-numeric: tabular-nums; font-weight: 600; min-width: 6.5rem; }
td.limit { font-variant-numeric: tabular-nums; min-width: 6.5rem; }
.vantages td.limit, .vantages td.value { min-width: 3.5rem; }
.vantages td:last-child { min-width: 15rem; }
sub { line-height: 0; }
td small, th small { display: block; font-weight: 400; color: var(--muted); }
tr.here { background: #eaf3f9; }
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
dd { overflow-wrap: anywhere; padding-right: .8rem; }
figure { margin: 1.6rem 0; }
figure svg, figure img { display: block; width: 100%; height: auto; }
figure svg text { font-family: inherit !important; }
figcaption { color: var(--muted); font-size: .92rem; max-width: 46rem; margin-top: .4rem; }
figcaption strong { color: var(--ink); }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--blue); }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .88em;
  overflow-wrap: anywhere; }
.all td, .all th { padding: .2rem .9rem .2rem 0; font-weight: 400; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line);
  color: var(--muted); font-size: .88rem; }
@media (max-width: 40rem) {
  main { padding: 1.2rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  .questions thead { display: none; }
  .questions tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0; }
  .questions th, .questions td { display: block; border: 0; padding: .15rem 0; }
  .questions td.limit::before { content: "Limit from theory: "; color: var(--muted); }
  dl, .settings { grid-template-columns: 1fr; }
  dt { border: 0; padding-bottom: 0; }
  dd { padding-top: 0; }
}
@media print {
  @page { margin: 16mm; }
  body { font-size: 9.5pt; }
  figure { max-width: 15cm; }
  main { max-width: none; padding: 0; }
  .verdict, .label, tr.here { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2, h3 { break-after: avoid; }
  figure, tr, .verdict, .label { break-inside: avoid; }
  details { display: none; }
  #specialists { display: block; }
  #specialists::details-content { content-visibility: visible; display: block; }
}
</style>"""
