"""Exports as spreadsheets and ticket systems write them, from the file to a ranked list."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import Command

ITEMS = 40  # every fourth one is of the same kind
KINDS = ("Küche", "Garten", "Büro", "Spielzeug")


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Order lines of a shop: cp1252, semicolons, German amounts and dates, a line with the sum."""
    home, rng = tmp_path_factory.mktemp("orders"), np.random.default_rng(21)
    lines = ["Auftrag;Kunden-Nr.;Artikel-Nr.;Bezeichnung;Menge;Einzelpreis;Datum"]
    for customer in range(90):
        for order in range(rng.integers(4, 8)):
            item = int(rng.integers(ITEMS // 4)) * 4 + customer % 4
            amount, day = ("1.200", "-1", "2", "1")[rng.integers(4)], rng.integers(1, 29)
            name = f'"Teil {item:03}, groß ""neu"""'
            row = f"{order:05};{10_000 + customer};{item:06};{name};{amount}"
            lines.append(f"{row};1.0{item:02},50 €;{day:02}.{rng.integers(1, 13):02}.2024")
    lines += ["00099;NULL;000001;x;1;1,00 €;01.01.2024", "Summe;;;;;;", ""]
    (home / "auftraege.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    rows = [f'{n:06};"Teil ""{n}""";{KINDS[n % 4]};1.{n:03},50 €' for n in range(ITEMS)]
    table = "\r\n".join(["Artikel-Nr.;Bezeichnung;Warengruppe;Preis", *rows])
    (home / "artikel.csv").write_text(table, encoding="utf-8-sig")
    return home


def test_a_shop(rankfold: Command, orders: Path, tmp_path: Path) -> None:
    """One error, which names the option; then a list."""
    data, model = tmp_path / "data", tmp_path / "model"
    words: list[Any] = ["prepare", orders / "auftraege.csv", "--out", data]
    guess = rankfold(*words)
    assert guess.code == 2
    assert "use --query-column NAME" in guess.err
    words += ["--query-column", "Kunden-Nr.", "--candidate-column", "Artikel-Nr."]
    words += ["--grade-column", "Menge", "--time-column", "Datum", "--encoding", "cp1252"]
    words += ["--decimal", ",", "--candidate-features", orders / "artikel.csv"]
    planned = json.loads(rankfold(*words, "--dry-run", "--json").out)["work"]
    done = rankfold(*words)
    assert done.code == 0, done.err
    assert "times are %d.%m.%Y" in done.err
    assert "grades: 1 to 1200" in done.err
    assert "candidate features: 1 number, 2 categories" in done.err
    summary = json.loads(rankfold("info", data, "--json").out)["summary"]
    assert summary["queries"] == planned["queries"] <= 90
    assert rankfold("fit", "ease", data, "--out", model).code == 0
    assert rankfold("evaluate", model, data).code == 0
    ask = ("search", model, "--query", "10005", "--json", "--where", "Preis < 1020")
    hits = json.loads(rankfold(*ask, "--explain").out)["results"]
    assert int(hits[0]["candidate"]) % 4 == 10_005 % 4
    assert max(int(one["candidate"]) for one in hits) < 20


def test_support_tickets(rankfold: Command, tmp_path: Path) -> None:
    """Texts over several lines, and labels in one column."""
    words = {"login": "cannot log in", "billing": "invoice is wrong", "api": "webhook not called"}
    rng, lines = np.random.default_rng(22), ["Ticket ID,Created,Subject,Body,Tags,Status"]
    for n in range(150):
        tags = [*rng.choice([*words], rng.integers(1, 3), replace=False)] if n % 20 else []
        body = "Hi,\n" + " and ".join(words[tag] for tag in tags) + f'.\nThanks, ""C"" {n}'
        mark = ("; ", ";")[n % 2]
        lines.append(f'T-{n},5/{n % 28 + 1}/2024 1:05 PM,Help,"{body}",{mark.join(tags)},open')
    table, data, model = tmp_path / "tickets.csv", tmp_path / "data", tmp_path / "model"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    done = rankfold("prepare", table, "--format", "texts", "--out", data)  # no error at all
    assert done.code == 0, done.err
    assert "text = Body, labels = Tags" in done.err
    assert "150 queries x 3 candidates" in done.err
    assert rankfold("fit", "text-neighbours", data, "--out", model).code == 0
    ask = ("search", model, "--text", "my invoice looks wrong", "--explain", "--json")
    first = json.loads(rankfold(*ask).out)["results"][0]
    assert first["candidate"] == "billing"
    assert {one["key"] for one in first["because"]} >= {"invoice", "wrong"}


def test_orders_with_the_customer_on_their_first_line(rankfold: Command, tmp_path: Path) -> None:
    """Two silent losses are named: customers in the cell above, and features by another key."""
    lines, products = ["Name,Email,Sku"], ["Handle,Sku code,Unit price"]
    for order in range(60):
        lines.append(f"#{order},U{order % 20}@x.org,S-{order % 7}")
        lines += [f"#{order},,S-{(order + more) % 9}" for more in (1, 2)]
    products += [f"mug-{n},S-{n},{n}.50" for n in range(9)]
    (tmp_path / "orders.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "products.csv").write_text("\n".join(products) + "\n")
    words = ["--query-column", "Email", "--candidate-column", "Sku", "--out", tmp_path / "data"]
    assert (
        "67% of the rows have no query" in rankfold("prepare", tmp_path / "orders.csv", *words).err
    )
    table = pl.read_csv(tmp_path / "orders.csv").with_columns(pl.col("Email").forward_fill())
    table.write_csv(tmp_path / "filled.csv")
    words += ["--candidate-features", tmp_path / "products.csv"]
    refused = rankfold("prepare", tmp_path / "filled.csv", *words)
    assert refused.code == 2
    assert "column 'Sku code' has those: put it first" in refused.err
    features = pl.read_csv(tmp_path / "products.csv").select("Sku code", "Unit price")
    features.write_csv(tmp_path / "products.csv")
    done = rankfold("prepare", tmp_path / "filled.csv", *words)
    assert done.code == 0, done.err
    assert "have no query" not in done.err
    model = tmp_path / "model"
    assert rankfold("fit", "popularity", tmp_path / "data", "--out", model).code == 0
    ask = ("search", model, "--query", "U1@x.org", "--json", "--where")
    assert '"Unit price"' in rankfold(*ask, "Unit price < 2").err
    hits = json.loads(rankfold(*ask, '"Unit price" < 2').out)["results"]
    assert {one["candidate"] for one in hits} <= {"S-0", "S-1"}
    about = rankfold("info", model).err
    assert "fitted on train of" in about
    assert "query = Email, candidate = Sku" in about


def test_tickets_with_a_column_for_each_label(rankfold: Command, tmp_path: Path) -> None:
    """Columns of the same name are a list of labels; other repeated columns are not in the way."""
    lines = ["Summary,Labels,Labels,Watchers,Watchers,Labels"]
    for n in range(40):
        lines.append(
            f"a {('vpn', 'mail', 'toner')[n % 3]} problem,{('vpn', 'mail', 'ink')[n % 3]},,a,b,it"
        )
    (tmp_path / "jira.csv").write_text("\n".join(lines) + "\n")
    words = ("prepare", tmp_path / "jira.csv", "--format", "texts", "--text-column", "Summary")
    done = rankfold(*words, "--candidate-column", "Labels", "--out", tmp_path / "data")
    assert done.code == 0, done.err
    assert "40 queries x 4 candidates, 80 pairs" in done.err
    twice = rankfold(*words[:4], "--text-column", "Watchers", "--out", tmp_path / "other")
    assert "two columns named 'Watchers'" in twice.err


def test_a_table_below_a_title(rankfold: Command, tmp_path: Path) -> None:
    rows = "".join(f"{n},{n % 5}.5,low\n" for n in range(20))
    (tmp_path / "loans.csv").write_text(f"Loans of the last quarter (draft)\nid,rate,risk\n{rows}")
    words = ("prepare", tmp_path / "loans.csv", "--format", "features", "--grade-column", "risk")
    done = rankfold(*words, "--out", tmp_path / "data")
    assert done.code == 2
    assert "names 1 column, the next lines have 3" in done.err


def test_insurance_claims(rankfold: Command, tmp_path: Path) -> None:
    """Amounts in dollars, gaps, and grades in words: two errors, each with its remedy."""
    pytest.importorskip("lightgbm")
    rng, lines = np.random.default_rng(23), ["claim_no\tamount\tvehicle\tage\tassessment"]
    for n in range(400):
        amount, age = rng.lognormal(7, 1), rng.integers(18, 90) if n % 20 else "N/A"
        grade = ("clear", "unclear", "fraud")[int(amount > 1500) + int(amount > 3500)]
        lines.append(f"C{n:05}\t${amount:,.2f}\t{('car', 'van')[n % 2]}\t{age}\t{grade}")
    table, data, model = tmp_path / "claims.tsv", tmp_path / "data", tmp_path / "model"
    table.write_text("\n".join(lines) + "\n")
    words: list[Any] = ["prepare", table, "--format", "features", "--out", data]
    words += ["--query-column", "claim_no"]
    assert "--grade-column" in rankfold(*words).err
    words += ["--grade-column", "assessment"]
    assert "--grades LOWEST" in rankfold(*words).err
    done = rankfold(*words, "--grades", "clear,unclear,fraud")
    assert done.code == 0, done.err
    assert "columns: 2 numbers, 1 category" in done.err
    assert rankfold("fit", "trees", data, "--out", model).code == 0
    new, out = tmp_path / "new.csv", tmp_path / "graded.csv"
    new.write_text('claim_no;amount;vehicle;age\nC1;"900,00";car;44\nC2;"9.000,00 €";car;44\n')
    done = rankfold("predict", model, new, "--out", out, "--decimal", ",", *words[-4:-2])
    assert done.code == 0, done.err
    graded = pl.read_csv(out)
    assert graded["query"].to_list() == ["C1", "C2"]
    assert graded["score"][0] < graded["score"][1]
