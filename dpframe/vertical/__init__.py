"""Tables split between curators: randomised by a server that cannot read them (sampling paper, §III).

Curators hold different columns of the same records. Each ranks its rows by a keyed hash of their ids, takes the m
lowest, and pads their codes; a server joins the padded rows by position and adds the plan's noise, which commutes with
pads; a researcher subtracts the pads and gets an ordinary release.

The knowledge of each party, and the assumptions of the guarantee:

- *Server*: sees codes under pads, which are uniform for any data; the number of records n and the plan. It is
  honest but curious: it must add the noise it says, once, and forget noise and key: with them even the release reveals
  the sums of its columns to it. It must not collude with the researcher: noise key and pads together give the plain
  sample.
- *Messages* of curators are only for the server, its output is only for the researcher (all of mode 0600; send them
  over channels that nobody else reads). A message and its pad together are the plain sample; a curator who has the
  server's output finds her own values there, and so which row of the release is whose. Headers are public.
- *Researcher*, and everybody who gets the release: rows of a secret sample, shuffled by the curators' keyed hash
  under a secret they do not have; so the plan's (ε, δ) holds, with the credit for order and sample.
- *A curator* knows the sample and the order in which rows leave. One who colludes with the researcher has only the
  local guarantee, `Plan.local`, about the other columns. One who sees only the release does not learn which row is
  whose from its place: the researcher puts rows in a fresh order.
- *Pads* are one-time: a curator encrypts a run once, a server perturbs it once, a researcher uses a pad once. With
  ``pad="stream"`` uniformity is computational (AES-256), with ``pad="one-time"`` perfect, as far as the operating
  system's randomness is.
- *Headers* are public, and hold nothing that one row may move: the number of rows and the columns' types follow the
  run and the table's declared kinds. The digest of the codes takes a random nonce that is only in the message: a
  header and a pad together confirm no guess of a value.
- *Measured tables* (``measure=``) go with the pad of the curator who measured them, and come out with the release: who
  has the pad has their (ε, δ), which is part of the plan's.
- Curators compare their sets of records by a keyed digest. Without the secret it shows only whether the sets are equal.

`Run.trust` states the knowledge of each coalition about the columns of a curator outside it, before the release goes
out; the example has a run with a measured table. "The pad" is the pad of that curator. The researcher has it unless a
row says otherwise, and every coalition may have the pads of others. Several other curators know as much as one, and
anybody with message and pad knows everything. The release then gives everybody the guarantee of the plan, and the local
guarantee to a curator who also sees the output of the server.

Examples
--------
>>> import os, shutil, tempfile
>>> import pandas as pd
>>> import dpframe as dpf
>>> here, folder = os.getcwd(), tempfile.mkdtemp()
>>> os.chdir(folder)
>>> ids = range(1_000)
>>> alice = pd.DataFrame({"id": ids, "job": ["farm", "shop"] * 500})
>>> bob = pd.DataFrame({"id": ids, "age": [30, 60] * 500}).sample(frac=1, random_state=1)
>>> parties = {name: Identity.create(name) for name in ("alice", "bob", "server")}
>>> keys = {name: identity.public for name, identity in parties.items()}
>>> secret = parties["alice"].share()
>>> path = shutil.copy("alice/shared.secret", "bob/shared.secret")
>>> curators = {"alice": ({"job": ["farm", "shop"]}, keys["alice"]), "bob": ({"age": (0, 99)}, keys["bob"])}
>>> run = new_run(curators, keys["server"], n=1_000, epsilon=1, sample=900, measure=[("job",)])
>>> print(run.trust().to_string(float_format="{:.3g}".format))
                                                     has  epsilon  delta
everybody                                        nothing        0      0
another curator                                  nothing        0      0
the server                                       nothing        0      0
the server and another curator                   nothing        0      0
all others, without the curator's pad            nothing        0      0
whoever has the pad alone                     the tables    0.711  5e-07
the researcher                               the promise        1  1e-06
the researcher and another curator     the local promise     3.95  1e-06
the server and the researcher                 everything      inf      1
>>> header = Curator(run, "alice").encrypt(alice, "alice.message", "alice.pad", id="id")
>>> header = Curator(run, "bob").encrypt(bob, "bob.message", "bob.pad", id="id", beside=["alice.message.header"])
>>> header = Server(run, "server").perturb(["alice.message", "bob.message"], "noisy")
>>> info = Researcher(run).decrypt("noisy", ["alice.pad", "bob.pad"], "release.parquet")
>>> dpf.read("release.parquet").dp.value_counts("job").columns.tolist()
['estimate', 'std_error', 'lower', 'upper']
>>> os.chdir(here)
>>> shutil.rmtree(folder)
"""

from dpframe.vertical.curator import Curator
from dpframe.vertical.keys import Identity, read_public
from dpframe.vertical.researcher import Researcher
from dpframe.vertical.run import Member, Run, new_run
from dpframe.vertical.server import Server

__all__ = ["Curator", "Identity", "Member", "Researcher", "Run", "Server", "new_run", "read_public"]
