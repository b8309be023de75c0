"""An interrupted job is repeated with its own key at no further cost, and with that input and plan only."""

import contextlib
import hmac
import json
import os
import random
import stat
from functools import partial

import processes
import pytest
from processes import JOB, key_file, key_folder

import dpframe as dpf
from dpframe import Ledger
from dpframe.errors import BudgetExceeded, FileError, LedgerError, ParameterError
from dpframe.ledger import job_keys
from dpframe.ledger.currencies import Amount
from dpframe.tables.files import digest_files

INPUT, CHANGED = b"input and plan", b"another input"


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.sqlite")
    made.create("survey", 1.0)
    return made


@pytest.fixture
def keys(tmp_path):
    """The names of the key files there are."""
    return lambda: sorted((tmp_path / "ledger.sqlite.keys").glob("*"))


class Killed(BaseException):
    pass


def run(ledger, binding=INPUT, *, epsilon=0.25, fail=None, **options):
    """Run a job; ``fail`` says where an exception strikes."""
    with job_keys.job(ledger, "survey", JOB, binding, **options) as job:
        if fail == "before":
            raise Killed
        job.spend(epsilon, 0.0)
        key = job.key
        if fail == "after":
            raise Killed
    return key, job


def interrupted(ledger, **options):
    with pytest.raises(Killed):
        run(ledger, fail="after", **options)
    (path,) = key_folder(ledger).glob("*.key")
    return bytes.fromhex(json.loads(path.read_text())["key"])


def test_a_job_that_ends_leaves_no_key(ledger, keys):
    key, job = run(ledger)
    other, again = run(ledger)
    assert (len(key), job.resumed, again.resumed) == (32, False, False)
    assert key != other
    assert job.release_id != again.release_id
    assert ledger.spent("survey").epsilon == 0.5
    assert keys() == []


def test_an_interrupted_job_is_repeated_at_no_cost(ledger, keys):
    key = interrupted(ledger)
    assert len(keys()) == 1
    assert interrupted(ledger) == key
    again, job = run(ledger)
    assert (again, job.resumed) == (key, True)
    assert ledger.spent("survey").epsilon == 0.25
    assert ledger.history()["release_id"].tolist() == [job.release_id]
    assert keys() == []
    assert run(ledger)[0] != key
    assert ledger.spent("survey").epsilon == 0.5


def test_a_repetition_needs_nothing_left(ledger):
    key = interrupted(ledger, epsilon=1.0)
    assert run(ledger, epsilon=1.0)[0] == key


def test_what_fails_before_it_spends_costs_and_leaves_nothing(ledger, keys):
    with pytest.raises(Killed):
        run(ledger, fail="before")
    assert keys() == []
    with pytest.raises(BudgetExceeded):
        run(ledger, epsilon=2.0)
    assert keys() == []
    with pytest.raises(ParameterError, match="epsilon must be finite"):
        run(ledger, epsilon=-1.0)
    assert keys() == []
    with pytest.raises(LedgerError, match="dataset surwey is not in"), job_keys.job(ledger, "surwey", JOB, INPUT):
        pass
    assert keys() == []
    assert not key_folder(Ledger(f"{ledger.path}2")).exists()
    assert ledger.history().empty


def test_a_repetition_that_fails_before_it_spends_keeps_the_key(ledger):
    key = interrupted(ledger)
    with pytest.raises(Killed):
        run(ledger, fail="before")
    assert run(ledger)[0] == key


def test_a_repetition_that_does_nothing_keeps_the_key(ledger):
    key = interrupted(ledger)
    with job_keys.job(ledger, "survey", JOB, INPUT):
        pass
    assert run(ledger)[0] == key


def test_no_key_before_the_spend(ledger):
    key = interrupted(ledger)
    with job_keys.job(ledger, "survey", JOB, INPUT) as job:
        with pytest.raises(LedgerError, match=r"a job has no.*its spend first"):
            _ = job.key
        job.spend(0.25, 0.0)
        assert job.key == key
        assert key.hex() not in repr(job)
        assert repr(key) not in repr(job)


def test_another_amount_under_the_same_key_is_refused(ledger):
    key = interrupted(ledger)
    with pytest.raises(LedgerError, match="is recorded for another dataset or amount"):
        run(ledger, epsilon=0.1)
    assert run(ledger)[0] == key


def test_a_changed_input_is_refused_and_never_gets_the_key(ledger, keys):
    key = interrupted(ledger)
    with pytest.raises(LedgerError) as caught:
        run(ledger, CHANGED)
    assert "the input or the plan changed since the interrupted run of out.parquet" in str(caught.value)
    assert f"`dpframe ledger forget {ledger.path} --dataset survey --job out.parquet` deletes it" in str(caught.value)
    assert len(keys()) == 1
    assert ledger.spent("survey").epsilon == 0.25
    fresh, job = run(ledger, CHANGED, forget=True)
    assert fresh != key
    assert not job.resumed
    assert ledger.spent("survey").epsilon == 0.5


def test_forget_starts_anew_though_nothing_changed(ledger):
    key = interrupted(ledger)
    assert run(ledger, forget=True)[0] != key
    assert ledger.spent("survey").epsilon == 0.5


@pytest.mark.slow
def test_a_key_that_never_paid_is_no_obstacle(ledger, keys):
    """Killed between key and spend: nothing was drawn, so a changed input takes a fresh key."""
    with processes.child(processes.run_job, ledger, INPUT) as (process, connection):
        connection.send("go")
        assert connection.recv()[0] == "started"
        process.kill()
    (path,) = keys()
    old = json.loads(path.read_text())
    with job_keys.job(ledger, "survey", JOB, CHANGED) as job:
        assert not job.resumed
        assert job.release_id != old["release_id"]
        job.spend(0.25, 0.0)
        assert job.key.hex() != old["key"]


def test_dataset_and_name_have_keys_of_their_own(ledger):
    ledger.create("other", 1.0)
    key = interrupted(ledger)
    for dataset, name in (("other", JOB), ("survey", "other.parquet"), ("survey", JOB + "2")):
        with job_keys.job(ledger, dataset, name, INPUT) as job:
            job.spend(0.1, 0.0)
            assert not job.resumed
            assert job.key != key
    assert run(ledger)[0] == key


def test_no_two_pairs_of_dataset_and_name_run_into_one_another(ledger, keys):
    ledger.create("a", 1.0)
    ledger.create("ab", 1.0)
    with job_keys.job(ledger, "a", "bc", INPUT), job_keys.job(ledger, "ab", "c", INPUT):
        assert len(keys()) == 2


def test_the_tag_is_of_dataset_input_and_plan(ledger, keys):
    bound = job_keys.bind(b"input", b"plan")
    key = interrupted(ledger, binding=bound)
    for parts in ((b"inputp", b"lan"), (b"input", b"plan2"), (b"", b"inputplan")):
        with pytest.raises(LedgerError, match=r"the input or the.*the interrupted run"):
            run(ledger, job_keys.bind(*parts))
    (path,) = keys()
    content = path.read_text()
    path.write_text(json.dumps(json.loads(content) | {"dataset": "survex"}))
    with pytest.raises(LedgerError, match=r"the input or the.*the interrupted run"):
        run(ledger, bound)
    path.write_text(content)
    assert run(ledger, bound)[0] == key


def test_a_digest_under_the_jobs_own_key(ledger):
    """Each job's digest is under its own key, the same again where the job is repeated, and of what was drawn."""
    seen = []

    def keyed(table, key):
        seen.append(key)
        return hmac.digest(key, table, "sha256")

    key = interrupted(ledger, keyed=partial(keyed, b"table"))
    with pytest.raises(LedgerError, match=r"the input or the.*the interrupted run"):
        run(ledger, keyed=partial(keyed, b"another"))
    with pytest.raises(LedgerError, match=r"the input or the.*the interrupted run"):
        run(ledger)
    assert run(ledger, keyed=partial(keyed, b"table"))[0] == key
    assert run(ledger, keyed=partial(keyed, b"table"))[0] != key
    assert seen[0] == seen[1] == seen[2] != seen[3]
    with job_keys.job(ledger, "survey", JOB, INPUT, keyed=partial(keyed, b"table")) as job:
        job.spend(0.1, 0.0)
        job.check_input(keyed(b"table", job.key))
        with pytest.raises(FileError, match=r"the input changed while.*forget .*--job"):
            job.check_input(keyed(b"another", job.key))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_key_files_are_for_the_owner_alone(ledger, keys, mask):
    before = os.umask(mask)
    try:
        interrupted(ledger)
    finally:
        os.umask(before)
    (path,) = keys()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_key_file_holds_no_digest_of_the_input(ledger, keys):
    interrupted(ledger)
    (path,) = keys()
    data = json.loads(path.read_text())
    assert data.keys() == {"schema", "dataset", "name", "release_id", "key", "tag"}
    assert INPUT.decode() not in path.read_text()
    assert INPUT.hex() not in path.read_text()


@pytest.mark.parametrize("content", [b"", b"{", bytes(300), b'{"schema": 1}', b"[1]", b'{"schema": "1"}'])
def test_a_file_that_was_never_finished_is_written_again(ledger, keys, content):
    """The key comes before the spend, so nothing was drawn under such a key."""
    interrupted(ledger)
    (path,) = keys()
    path.write_bytes(content)
    assert not run(ledger, CHANGED)[1].resumed
    assert keys() == []


def test_a_newer_key_file_is_refused(ledger, keys):
    interrupted(ledger)
    (path,) = keys()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 2}))
    with pytest.raises(LedgerError, match=r"has schema 2, this.*1; upgrade dpframe"):
        run(ledger)


def test_symbolic_links_are_not_followed(ledger, keys, tmp_path):
    interrupted(ledger)
    (path,) = keys()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match=r"key file.*cannot be used: Too.*of symbolic links"):
        run(ledger)


def contents(ledger):
    return {path: path.read_bytes() for path in key_folder(ledger).glob("*.key")}


def refused(ledger, message):
    """A job, the list of jobs and the removal of a key are refused, at no cost and with nothing written."""
    before = contents(ledger)
    spent = ledger.spent("survey")
    message = rf"^the key .*{message}.*: find out who made it, and remove it$"
    with pytest.raises(LedgerError, match=message):
        run(ledger)
    with pytest.raises(LedgerError, match=message):
        job_keys.pending(ledger)
    with pytest.raises(LedgerError, match=message):
        job_keys.forget(ledger, "survey", JOB)
    assert contents(ledger) == before
    assert ledger.spent("survey") == spent


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o750, 0o701])
@pytest.mark.posix
def test_a_key_folder_that_others_may_enter_is_refused(ledger, mode):
    folder = key_folder(ledger)
    folder.mkdir()
    folder.chmod(mode)
    refused(ledger, r"folder .*has rights for others \(it must have mode 0700\)")
    assert list(folder.iterdir()) == []


def test_a_key_folder_that_is_a_link_is_refused(ledger, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    key_folder(ledger).symlink_to(tmp_path / "elsewhere")
    refused(ledger, "folder .*is a link or no folder")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_place_of_the_key_folder_is_refused(ledger):
    key_folder(ledger).write_text("")
    with pytest.raises(LedgerError, match=r"folder.*is a link or.*and remove it"):
        run(ledger)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o606])
@pytest.mark.posix
def test_a_key_file_that_others_may_read_is_refused(ledger, keys, mode):
    interrupted(ledger)
    (path,) = keys()
    path.chmod(mode)
    refused(ledger, r"file .*has rights for others \(it must have mode 0600\)")


@pytest.mark.posix
def test_a_key_file_that_was_put_there_before_is_refused(ledger):
    path = key_file(ledger)
    path.write_bytes(b"")
    path.chmod(0o644)
    refused(ledger, r"file .*has rights for others")
    assert path.read_bytes() == b""


def test_a_key_file_with_another_link_is_refused(ledger, keys, tmp_path):
    interrupted(ledger)
    (path,) = keys()
    os.link(path, tmp_path / "copy")
    refused(ledger, "file .*has another link")


@pytest.mark.posix
def test_a_key_file_that_is_no_file_is_refused(ledger):
    path = key_file(ledger)
    os.mkfifo(path, 0o600)
    with pytest.raises(LedgerError, match=r"file.*is no regular file.*: find out who.*and remove it"):
        run(ledger)
    with pytest.raises(LedgerError, match=r"file.*is no regular file.*: find out who.*and remove it"):
        job_keys.pending(ledger)


def test_a_link_in_place_of_a_key_file_is_not_listed(ledger, keys, tmp_path):
    interrupted(ledger)
    (path,) = keys()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match=r"key file.*cannot be used: Too.*of symbolic links"):
        job_keys.pending(ledger)
    with pytest.raises(LedgerError, match=r"key file.*cannot be used: Too.*of symbolic links"):
        job_keys.forget(ledger, "survey", JOB)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.posix
def test_a_stranger_s_key_folder_or_file_is_refused(ledger, keys, what):
    interrupted(ledger)
    (path,) = keys()
    os.chown(path.parent if what == "folder" else path, 65534, 65534)
    refused(ledger, f"{what} .*belongs to another user")


@pytest.mark.posix
def test_a_folder_that_is_swapped_under_a_running_job_gets_no_key(ledger, tmp_path):
    """What was looked at is what is written: the folder that stands at the path afterwards is another."""
    folder = key_folder(ledger)
    with job_keys.job(ledger, "survey", JOB, INPUT) as job:
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        folder.chmod(0o777)
        job.spend(0.25, 0.0)
    assert list(folder.iterdir()) == list((tmp_path / "moved").iterdir()) == []


@pytest.mark.posix
def test_a_key_that_cannot_be_stored_costs_nothing():
    with processes.open_folder() as folder:
        ledger = Ledger(folder / "ledger.sqlite")
        ledger.create("survey", 1.0)
        folder.chmod(0o777)
        (folder / "ledger.sqlite").chmod(0o666)
        with processes.nobody():
            (folder / "ledger.sqlite.keys").mkdir(mode=0o500)
        with processes.nobody(), pytest.raises(LedgerError, match=r"key file .* cannot be used: Permission denied"):
            run(ledger)
        assert ledger.spent("survey") == Amount(0.0)


def test_pending_and_forget(ledger, keys):
    assert job_keys.pending(ledger) == []
    interrupted(ledger)
    (found,) = job_keys.pending(ledger)
    assert (found.dataset, found.name) == ("survey", JOB)
    assert ledger.find(found.release_id) is not None
    with pytest.raises(LedgerError, match=r"no interrupted job in.parquet.*there is: out.parquet"):
        job_keys.forget(ledger, "survey", "in.parquet")
    job_keys.forget(ledger, "survey", JOB)
    assert keys() == job_keys.pending(ledger) == []
    with pytest.raises(LedgerError, match="there is: none"):
        job_keys.forget(ledger, "survey", JOB)
    assert ledger.spent("survey").epsilon == 0.25


def test_name_is_text(ledger):
    for name in ("", None, 3):
        with (
            pytest.raises(ParameterError, match="name must be text of at least one character"),
            job_keys.job(ledger, "survey", name, INPUT),
        ):
            pass


# Processes


@pytest.mark.parametrize("stage", ["started", "spent", "done"])
def test_killed_at_every_stage(ledger, keys, stage):
    with processes.child(processes.run_job, ledger, INPUT) as (process, connection):
        connection.send("go")
        seen = {}
        while stage not in seen:
            if seen:
                connection.send("go on")
            word, release_id, key = connection.recv()
            seen[word] = (release_id, key)
        process.kill()
        process.join()
        assert len(keys()) == (stage != "done")
        key, job = run(ledger)
    assert job.resumed == (stage != "done")
    assert (job.release_id == seen[stage][0]) == (stage != "done")
    if stage == "spent":
        assert key == seen["spent"][1]
    assert ledger.spent("survey").epsilon == (0.5 if stage == "done" else 0.25)
    assert keys() == []


def test_a_running_job_is_not_taken_for_an_interrupted_one(ledger, keys):
    with processes.child(processes.run_job, ledger, INPUT) as (_, connection):
        connection.send("go")
        for stage in ("started", "spent"):
            assert connection.recv()[0] == stage
            for binding in (INPUT, CHANGED):
                for forget in (False, True):
                    with pytest.raises(LedgerError, match="this job is running already"):
                        run(ledger, binding, forget=forget)
            with pytest.raises(LedgerError, match="this job is running already"):
                job_keys.forget(ledger, "survey", JOB)
            assert len(keys()) == 1
            connection.send("go on")
        assert connection.recv()[0] == "done"
        assert keys() == []
        assert run(ledger)[1].resumed is False
    assert ledger.spent("survey").epsilon == 0.5


@pytest.mark.slow
def test_killed_at_any_moment(ledger, keys):
    """Jobs in a loop, killed somewhere: every key that drew has its spend, and no key is lost before its job ended."""
    chance = random.Random(3)
    drawn = {}
    for _ in range(10):
        with processes.child(processes.run_jobs_forever, ledger, INPUT) as (process, connection):
            connection.send("go")
            seen = [connection.recv() for _ in range(chance.randrange(12))]
            process.kill()
            seen += processes.received(connection)
        drew = [word for word in seen if isinstance(word, tuple)]
        for release_id, key in drew:
            assert drawn.setdefault(release_id, key) == key
        recorded = set(ledger.history()["release_id"])
        assert drawn.keys() <= recorded
        # A job that had not said that it was ending had its key still; one that was may have lost it.
        if seen and seen[-1] in drew:
            with job_keys.job(ledger, "survey", JOB, INPUT) as job:
                job.spend(1e-6, 0.0)
                assert job.resumed
                assert (job.release_id, job.key) == seen[-1]
        assert len(keys()) <= 1
        assert ledger.spent("survey").epsilon == pytest.approx(len(recorded) * 1e-6)


def test_at_one_time_one_gets_in(ledger, keys):
    """Many processes start the same job at once: who gets in has a key and a spend of its own."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(processes.child(processes.try_jobs, ledger, INPUT, 20)) for _ in range(4)]
        for _, connection in started:
            connection.send("go")
        found = [outcome for _, connection in started for outcome in processes.received(connection)]
    done = [key for key in found if isinstance(key, bytes)]
    assert len(found) == 80
    assert len(set(done)) == len(done) == len(ledger.history())
    assert done
    assert all("this job is running already" in outcome for outcome in found if isinstance(outcome, str))
    assert keys() == []


# Releases


def test_a_repeated_release_is_the_same_file(ledger, tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    dpf.datasets.make_census(500, columns=["age", "sex"]).to_parquet(source, index=False)
    plan = dpf.plan(source, 0.5, delta=0.0, spaces={"age": (0, 120), "sex": ["F", "M"]})

    def release(fail):
        binding = job_keys.bind(digest_files([source]), plan.digest)
        with job_keys.job(ledger, "survey", job_keys.job_name(target), binding) as job:
            job.spend(plan.epsilon, plan.delta)
            dpf.sanitize(source, target, plan=plan, key=job.key)
            if fail:
                raise Killed

    with pytest.raises(Killed):
        release(fail=True)
    first = target.read_bytes()
    release(fail=False)
    assert target.read_bytes() == first
    assert ledger.spent("survey").epsilon == 0.5
    release(fail=False)
    assert target.read_bytes() != first
    assert ledger.remaining("survey") == Amount(0.0)


# Digests


def test_digest_of_files(tmp_path, monkeypatch):
    one, two = tmp_path / "a" / "x", tmp_path / "b" / "x"
    for path in (one, two):
        path.parent.mkdir()
        path.write_bytes(b"content")
    assert digest_files([one]) != digest_files([two])  # a folder may be a partition key
    assert digest_files([one, two]) != digest_files([two, one])
    assert digest_files([]) != digest_files([one])
    before = digest_files([one, two])
    monkeypatch.chdir(tmp_path)
    assert digest_files(["a/x", "b/x"]) == before
    two.write_bytes(b"contenT")
    assert digest_files([one, two]) != before
    with pytest.raises(FileError, match=r"no cannot be read:.*file or directory"):
        digest_files(["no"])


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_replaced_before_it_was_locked_is_not_held(ledger, keys, tmp_path, monkeypatch, replaced):
    """Opened by one process, removed by the one that held its lock, locked by the first: its key would be lost."""
    path, lock = key_file(ledger), job_keys.try_lock

    def late(descriptor):
        if not late.came:
            late.came = True
            path.unlink()
            if replaced:
                (tmp_path / "other").touch(mode=0o600)
                (tmp_path / "other").rename(path)
        return lock(descriptor)

    late.came = False
    monkeypatch.setattr(job_keys, "try_lock", late)
    key = interrupted(ledger)
    assert late.came
    assert keys() == [path]
    assert run(ledger)[0] == key


def test_job_name_is_where_the_file_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        job_keys.job_name("out.parquet") == job_keys.job_name(tmp_path / "out.parquet") == str(tmp_path / "out.parquet")
    )
