"""What the outermost ORDER BY of a truth sorts by: which of its rows may change places. Pure, by sqlglot's trees.

Only truths are read here, never an answer: sqlglot's grammar is not the engines', and answers are theirs to judge.
"""

from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError


@dataclass(frozen=True, slots=True)
class Order:
    """`query` gives the truth's rows with further columns behind them; `keys` are the columns of it that sort."""

    query: str
    keys: tuple[int, ...]


def order_of(sql: str, engine: str, width: int) -> Order | None:
    """By what the rows of `sql`, of `width` columns, are sorted; none where they are not.

    Where the keys can't be shown beside the rows (below a DISTINCT or a UNION, or in a grammar unknown to sqlglot), the
    whole row is the key: then only rows that are alike may change places.
    """
    whole = Order(sql, tuple(range(width)))
    try:
        tree = sqlglot.parse_one(sql, dialect=engine)
    except (SqlglotError, RecursionError):
        return whole if "order" in sql.lower() else None
    while isinstance(tree, exp.Subquery) and not tree.args.get("order"):
        tree = tree.this
    if not (order := tree.args.get("order")):
        return None
    outputs = tree.selects if isinstance(tree, exp.Query) else []
    named = not any(output.is_star for output in outputs)
    keys, further = [], []
    for ordered in order.expressions:
        at = _output(ordered.this, outputs) if named or ordered.this.is_int else None
        if at is None:
            further.append(ordered.this)
            at = width + len(further) - 1
        keys.append(at)
    if not further:
        return Order(sql, tuple(keys))
    if not isinstance(tree, exp.Select) or tree.args.get("distinct"):
        return whole
    meanings = {output.alias: output.this for output in outputs if isinstance(output, exp.Alias)}
    longer = tree.select(*(_spelled_out(key, meanings) for key in further), append=True, copy=True)
    return Order(longer.sql(dialect=engine), tuple(keys))


def _output(key: exp.Expression, outputs: list[exp.Expression]) -> int | None:
    """The column of the result that a key names: by number, by name or by the same expression."""
    if key.is_int:
        return int(key.this) - 1
    for at, output in enumerate(outputs):
        if isinstance(key, exp.Column) and not key.table and output.alias_or_name.lower() == key.name.lower():
            return at
    return next((at for at, output in enumerate(outputs) if output.unalias() == key), None)


def _spelled_out(key: exp.Expression, meanings: dict[str, exp.Expression]) -> exp.Expression:
    def spell(node: exp.Expression) -> exp.Expression:
        known = isinstance(node, exp.Column) and not node.table and node.name in meanings
        return exp.paren(meanings[node.name].copy()) if known else node

    return key.copy().transform(spell)
