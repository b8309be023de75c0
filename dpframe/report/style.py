"""The page's look: dark on light, one column that becomes two where there is room, and nothing cut in print."""

STYLE = """
:root { --ink: #1b2733; --soft: #4d5b69; --rule: #d5dce3; --paper: #ffffff; --wash: #f4f7fa; --blue: #2f5f8f;
  --pale: #dbe6f1; --good: #17643a; --bad: #a3160c; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--wash); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 2.5rem 2rem 3rem; background: var(--paper); }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0.2rem 0 1rem; }
h2 { font-size: 1.3rem; margin: 2.8rem 0 0.6rem; padding-top: 1rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 0 0 0.5rem; overflow-wrap: anywhere; }
p { margin: 0.5rem 0; max-width: 46rem; }
ul { margin: 0.4rem 0; padding-left: 1.2rem; max-width: 46rem; }
li { margin: 0.25rem 0; overflow-wrap: anywhere; }
.over { margin: 0; color: var(--soft); letter-spacing: 0.06em; text-transform: uppercase; font-size: 0.8rem; }
.note, caption { color: var(--soft); font-size: 0.9rem; }
.verdict { padding: 0.7rem 1rem; border-left: 6px solid; max-width: none; background: var(--wash); }
.verdict.good { border-color: var(--good); } .verdict.good strong { color: var(--good); }
.verdict.bad { border-color: var(--bad); } .verdict.bad strong { color: var(--bad); }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1.2rem; margin: 1rem 0; }
.figures { columns: 25rem 2; column-gap: 1.2rem; margin: 1rem 0 0.4rem; }
.figures .panel { margin-bottom: 1.2rem; }
.panel { border: 1px solid var(--rule); border-radius: 8px; padding: 1.1rem 1.2rem; background: var(--paper);
  break-inside: avoid; min-width: 0; }
.panel.main { border: 2px solid var(--blue); }
.panel p { font-size: 0.95rem; }
.panel .size { font-size: 1.5rem; font-weight: 600; margin: 0.1rem 0; }
.panel .size small { font-size: 0.9rem; font-weight: 400; color: var(--soft); display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 0 0 0.4rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.6rem 0.35rem 0;
  border-bottom: 1px solid var(--rule); }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 600; overflow-wrap: break-word; }
.beliefs { max-width: 46rem; }
.number { text-align: right; white-space: nowrap; }
td.number { padding-left: 0.6rem; }
.columns tbody th { min-width: 6rem; max-width: 14rem; } .columns td { min-width: 4rem; }
.columns td:nth-child(2) { min-width: 13rem; }
.bars td, .bars th { padding-top: 0.15rem; padding-bottom: 0.15rem; border: 0; vertical-align: middle; }
.bars td:last-child { width: 170px; padding-right: 0; }
.bars tbody th { font-weight: 400; overflow-wrap: break-word; }
.panel .bars thead { display: none; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
svg { display: block; }
.scale { margin: 0.7rem 0; }
.scale svg { width: 100%; height: 16px; }
.scale div { display: flex; justify-content: space-between; font-size: 0.8rem; color: var(--soft); }
.split svg { width: 100%; height: 18px; }
.fill { fill: var(--blue); } .track { fill: var(--pale); }
.end { fill: var(--blue); } .whisker { stroke: var(--ink); stroke-width: 1.5; }
.bars .fill { fill: #7ba3cb; } .bars circle.fill { fill: var(--blue); }
.scale .track { fill: var(--pale); } .scale .fill { fill: #7ba3cb; }
.part0 { fill: #b45f06; } .part1 { fill: var(--blue); }
.key { display: inline-block; width: 0.8rem; height: 0.8rem; border-radius: 2px; margin-right: 0.35rem; }
.key.part0 { background: #b45f06; } .key.part1 { background: var(--blue); }
dt { font-weight: 600; } dd { margin: 0 0 0.6rem; max-width: 46rem; }
footer { margin-top: 2.8rem; padding-top: 1rem; border-top: 2px solid var(--rule); color: var(--soft);
  font-size: 0.85rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) { main { padding: 1.2rem 1rem; } }
@media print {
  @page { margin: 16mm 14mm; }
  body { background: none; font-size: 10.5pt; } main { max-width: none; padding: 0; }
  h2 { break-after: avoid; } tr, li { break-inside: avoid; } .wide { overflow: visible; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
