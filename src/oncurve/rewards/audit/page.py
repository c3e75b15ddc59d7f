"""An audit as one HTML file that needs nothing else."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from oncurve.rewards.audit.finding import Example, Finding, words

STYLE = """
:root { color-scheme: light dark; --page: #fbfaf8; --card: #fff; --ink: #1d1d1f; --soft: #66666e; --line: #e4e2dd;
  --good: #1b7f4b; --bad: #c0262d; --bad-back: #fdf0ef; --code: #f4f3ef; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16171a; --card: #1e2024; --ink: #ececef; --soft: #a2a3ab; --line: #34363c;
    --good: #5fce93; --bad: #ff8079; --bad-back: #33201f; --code: #141518; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); }
.sum { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); }
details { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; margin: .5rem 0; }
details.broken { border-color: var(--bad); background: var(--bad-back); }
summary { cursor: pointer; padding: .6rem .8rem; display: grid; grid-template-columns: 5.25rem 1fr auto;
  gap: .15rem .75rem; align-items: baseline; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary:focus-visible { outline: 2px solid var(--soft); border-radius: .6rem; }
summary .mark { font-weight: 700; font-size: .85rem; } summary .name { font-weight: 600; overflow-wrap: anywhere; }
summary .wrong { color: var(--soft); font-variant-numeric: tabular-nums; font-size: .9rem; }
summary .verdict { grid-column: 2 / -1; color: var(--soft); overflow-wrap: anywhere; }
.inner { padding: 0 .8rem .8rem; border-top: 1px solid var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem .9rem; margin: .8rem 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
pre { margin: 0; padding: .7rem; background: var(--code); border-radius: .4rem; white-space: pre-wrap;
  overflow-wrap: anywhere; max-height: 22rem; overflow-y: auto; font: .85rem/1.45 ui-monospace, monospace; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: .1rem; } dd { margin-bottom: .5rem; } }
"""


def page(title: str, findings: Sequence[Finding]) -> str:
    """The whole page; what is broken stands open."""
    applied = [finding for finding in findings if finding.applies]
    broken = [finding for finding in applied if not finding.ok]
    says = (
        f'<p class="sum bad">{len(broken)} of {len(applied)} are broken: a model will find them.</p>'
        if broken
        else f'<p class="sum good">All {len(applied)} as they should be.</p>'
    )
    kinds = "".join(_kind(kind, list(group)) for kind, group in groupby(findings, lambda finding: finding.kind))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Audit of {escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>Audit of the reward</h1>\n<p class=soft>{escape(title)}</p>\n{says}\n{kinds}</main>\n</body>\n</html>\n"
    )


def _kind(kind: str, findings: Sequence[Finding]) -> str:
    shown = sorted((finding for finding in findings if finding.applies), key=lambda finding: finding.ok)
    left = [finding.exploit for finding in findings if not finding.applies]
    note = f'<p class="soft">No attack for this kind: {escape(", ".join(left))}.</p>\n' if left else ""
    return f"<h2>{escape(kind.replace('_', ' '))}</h2>\n" + "".join(map(_finding, shown)) + note


def _finding(finding: Finding) -> str:
    mark = '<span class="mark good">ok</span>' if finding.ok else '<span class="mark bad">BROKEN</span>'
    wrong = f"{finding.num_wrong} of {finding.num_attacks} wrong" if finding.num_attacks else ""
    rows = [("what it does", escape(finding.does)), ("what is right", escape(finding.right))]
    rows += _example(finding.example) if finding.example else []
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    return (
        f"<details{'' if finding.ok else ' class=broken open'}><summary>{mark}"
        f'<span class="name">{escape(finding.exploit.replace("_", " "))}</span><span class="wrong">{wrong}</span>'
        f'<span class="verdict">{escape(finding.verdict)}</span></summary><div class="inner"><dl>{listed}</dl></div></details>\n'
    )


def _example(example: Example) -> list[tuple[str, str]]:
    score = example.score
    answer = example.text if example.text.strip() else repr(example.text)
    parts = ", ".join(f"{name} {value:.4g}" for name, value in score.parts.items())
    rows = [
        ("task", escape(example.task_id)),
        ("worst answer", f'<pre tabindex="0">{escape(answer)}</pre>'),
        ("score", escape(words(score))),
        ("parts", escape(parts)),
        ("extracted", escape("" if score.extracted is None else repr(score.extracted))),
        ("evidence", escape(score.evidence)),
        ("verifier", escape(score.verifier)),
    ]
    return [(name, value) for name, value in rows if value]
