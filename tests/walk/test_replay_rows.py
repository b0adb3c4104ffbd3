"""COUNT(*) that was released beside a measure answers a later question that has no use for the measure."""

from pathlib import Path

from tests.fixtures.whole import clinic
from tests.walk.test_refine import ask, rho


def test_a_count_beside_a_sum_is_read_again_alone(tmp_path: Path) -> None:
    with clinic(tmp_path, epsilon="3000") as (_, walk):
        where = "FROM visits WHERE cost > 7 GROUP BY ward"
        both = ask(walk, rho(f"SELECT ward, SUM(cost) AS s, COUNT(*) AS n {where}", 0.5))
        alone = ask(walk, rho(f"SELECT ward, COUNT(*) AS n {where}", 0.02))
        assert alone["cost"]["replay_of"] == both["id"]
        assert [row[1] for row in alone["rows"]] == [row[2] for row in both["rows"]]
        finer = ask(walk, rho(f"SELECT ward, COUNT(*) AS n {where}", 0.5))  # alone it would be less noisy
        assert finer["cost"]["replay_of"] is None
