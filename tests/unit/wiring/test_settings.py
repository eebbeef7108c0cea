"""The operator's settings, and how their faults are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.settings import Settings, strange
from services.wiring.parts import role_rules
from shared.domain.access import Role, RoleRule
from shared.domain.errors import Invalid
from tests.support.secret_files import write_secret


@pytest.mark.parametrize(
    ("variable", "value"), [("EYAS_PORT", "abc"), ("EYAS_PORT", "70000"), ("EYAS_METRICS_PORT", "-1"), ("EYAS_DATA_ROOTS", '["a"]')]
)
def test_a_wrong_variable_is_one_line_that_names_it(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(Invalid) as caught:
        Settings.read({})
    said = str(caught.value)
    assert said.startswith(f"{variable}: ")
    assert repr(value) in said
    assert "\n" not in said


def test_families_are_modules_between_commas(monkeypatch):
    monkeypatch.setenv("EYAS_FAMILIES", "acme.fading, acme_two,")
    assert Settings.read({}).families == ["acme.fading", "acme_two"]
    for wrong in ("acme.fading:Fading", "acme-two", "../acme", "acme."):
        monkeypatch.setenv("EYAS_FAMILIES", wrong)
        with pytest.raises(Invalid, match="EYAS_FAMILIES: expected module names such as"):
            Settings.read({})
    monkeypatch.delenv("EYAS_FAMILIES")
    assert Settings.read({}).families == []


def test_trusted_proxies_are_addresses_and_networks_between_commas(monkeypatch):
    assert Settings.read({}).trusted_proxies == []
    monkeypatch.setenv("EYAS_TRUSTED_PROXIES", "10.0.7.4, 10.244.0.0/16,fd00::/8,::1,")
    assert Settings.read({}).trusted_proxies == ["10.0.7.4", "10.244.0.0/16", "fd00::/8", "::1"]


def test_trusted_proxies_that_are_no_proxies_are_refused_in_one_line(monkeypatch, subtests):
    for wrong in ("ingress.example", "10.0.7.4/8", "10.0.7", "10.0.7.4:80", "fd00::/129", "[::1]"):
        with subtests.test(wrong=wrong):
            monkeypatch.setenv("EYAS_TRUSTED_PROXIES", f"10.0.7.4,{wrong}")
            with pytest.raises(Invalid) as caught:
                Settings.read({})
            example = "addresses, or networks without host bits, such as 10.0.7.4 or 10.244.0.0/16"
            assert str(caught.value) == f"EYAS_TRUSTED_PROXIES: expected {example}, separated by ',', got '{wrong}'"
    for everyone in ("*", "0.0.0.0/0", "::/0"):
        with subtests.test(everyone=everyone):
            monkeypatch.setenv("EYAS_TRUSTED_PROXIES", f"10.0.7.4,{everyone}")
            with pytest.raises(Invalid) as caught:
                Settings.read({})
            reason = "because everyone else could forge an address"
            assert str(caught.value) == f"EYAS_TRUSTED_PROXIES: expected only your proxies, {reason}, got '{everyone}'"


def test_data_roots_are_paths_between_colons(monkeypatch):
    monkeypatch.setenv("EYAS_DATA_ROOTS", "/a:b c::/d")
    assert Settings.read({}).data_roots == ["/a", "b c", "/d"]
    monkeypatch.setenv("EYAS_DATA_ROOTS", "s3://lake/films:/a:s3://lake")
    assert Settings.read({}).data_roots == ["s3://lake/films", "/a", "s3://lake"]
    monkeypatch.setenv("EYAS_DATA_ROOTS", "")
    assert Settings.read({}).data_roots == []


def test_what_is_given_has_the_last_word(monkeypatch):
    monkeypatch.setenv("EYAS_PORT", "1")
    monkeypatch.setenv("EYAS_DATA_ROOTS", "/a")
    found = Settings.read({"port": 2, "data_roots": [Path("/with:colon")]})
    assert (found.port, found.data_roots) == (2, ["/with:colon"])


WRONG = (
    ("EYAS_ROLE", "both", "'all', 'control' or 'gateway'"),
    ("EYAS_HOST", "localhost", "expected an IPv4 address"),
    ("EYAS_TRITON", "http://triton:8001", "expected 'embedded', HOST:PORT of Triton's gRPC"),
    ("EYAS_TRITON", "triton:0", "expected 'embedded', HOST:PORT of Triton's gRPC"),
    ("EYAS_TRITON", "triton:65536", "expected 'embedded', HOST:PORT of Triton's gRPC"),
    ("EYAS_TRITON", "a:1,a:1", "expected 'embedded', HOST:PORT of Triton's gRPC"),
    ("EYAS_TRITON", "dns:tritons", "dns:NAME:PORT"),
    ("EYAS_TRITON_REPLICAS", "0", "1"),
    ("EYAS_EXECUTOR", "docker", "'local' or 'kubernetes'"),
    ("EYAS_REPLICA", "Pod_1", "as in a pod's name"),
    ("EYAS_DRAIN", "5", "a duration such as 30s"),
    ("EYAS_KEEP_AUDIT", "29d", "at least 30d, got"),
    ("EYAS_KEEP_HISTORY", "1s", "at least 30d, got"),
    ("EYAS_FORGET_WITHIN", "6d", "at least 7d, got"),
)


def test_wrong_values_are_refused_with_what_is_expected(monkeypatch, subtests):
    for variable, value, said in WRONG:
        with subtests.test(variable=variable, value=value), monkeypatch.context() as patched:
            patched.setenv(variable, value)
            with pytest.raises(Invalid, match=f"^{variable}: .*{said}.*{value}"):
                Settings.read({})


CONTRADICTORY = (
    ({"EYAS_ROLE": "gateway", "EYAS_TOKEN_FILE": "t"}, "role 'gateway' needs EYAS_TRITON"),
    ({"EYAS_ROLE": "control"}, "role 'control' needs EYAS_TRITON"),
    ({"EYAS_TRITON": "a:1", "EYAS_TRITON_REPLICAS": "2"}, "embedded Tritons alone use EYAS_TRITON_REPLICAS"),
    ({"EYAS_ROLE": "gateway", "EYAS_TRITON": "t:8001"}, "set EYAS_TOKEN_FILE"),
    ({"EYAS_EXECUTOR": "kubernetes"}, "set EYAS_JOBS_FILE"),
    ({"EYAS_DATABASE_PASSWORD": "a", "EYAS_DATABASE_PASSWORD_FILE": "b"}, "not both"),
)


def test_contradictory_settings_are_refused_in_one_line(monkeypatch, subtests):
    for environment, said in CONTRADICTORY:
        with subtests.test(environment=environment), monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            with pytest.raises(Invalid) as caught:
                Settings.read({})
            assert said in str(caught.value)
            assert "\n" not in str(caught.value)


def test_no_message_repeats_a_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("EYAS_DATABASE_URL", "postgresql://eyas:hunter2@db/eyas")
    monkeypatch.setenv("EYAS_DATABASE_PASSWORD", "hunter3")
    assert "hunter" not in repr(Settings.read({}))
    monkeypatch.setenv("EYAS_ROLE", "control")
    with pytest.raises(Invalid) as caught:
        Settings.read({})
    assert "hunter" not in str(caught.value)


def test_a_password_may_come_by_file(monkeypatch, tmp_path):
    file = tmp_path / "password"
    monkeypatch.setenv("EYAS_DATABASE_PASSWORD_FILE", str(file))
    with pytest.raises(Invalid, match=r"^EYAS_DATABASE_PASSWORD_FILE: .* cannot be read: No such file"):
        Settings.read({}).password()
    write_secret(file, "one\ntwo\n")
    with pytest.raises(Invalid, match="expected one line, found more") as caught:
        Settings.read({}).password()
    assert "two" not in str(caught.value)
    file.write_text("hunter2\n")
    assert Settings.read({}).password() == "hunter2"


def test_only_a_control_plane_on_a_file_owns_its_home(monkeypatch):
    monkeypatch.setenv("EYAS_TRITON", "triton:8001")
    monkeypatch.setenv("EYAS_TOKEN_FILE", "t")
    owns = {role: Settings.read({"role": role}).owns_home for role in ("all", "control", "gateway")}
    assert owns == {"all": True, "control": True, "gateway": False}
    assert not Settings.read({"role": "control", "database_url": "postgresql://db/eyas"}).owns_home


def test_tritons_are_one_or_several_or_a_name(monkeypatch):
    for said, alone in (("triton:8001", True), ("a:8001,b:8001", False), ("dns:tritons:8001", False), ("embedded", True)):
        monkeypatch.setenv("EYAS_TRITON", said)
        assert Settings.read({}).triton_alone is alone


@pytest.mark.parametrize(
    ("name", "near"), [("EYAS_MAXRUNS", "EYAS_MAX_RUNS"), ("EYAS_DATAROOTS", "EYAS_DATA_ROOTS"), ("eyas_hoem", "EYAS_HOME")]
)
def test_a_variable_that_is_no_setting_is_said_with_the_nearest(name, near):
    assert strange({name: "a-secret"}) == [f"{name}: unknown setting without effect; did you mean {near}?"]


def test_what_others_read_is_not_strange():
    known = ["EYAS_MAX_RUNS", "EYAS_TOKEN", "EYAS_URL", "EYAS_TEST_X", "EYAS_SCALE", "EYAS_CASES", "EYAS_CRASH_SEED", "EYAS_RANK", "PATH"]
    assert strange(dict.fromkeys(known, "1")) == []
    services = {"EYAS_GATEWAY_SERVICE_HOST": "10.0.0.1", "EYAS_GATEWAY_PORT": "tcp://10.0.0.1:80", "EYAS_GATEWAY_PORT_80_TCP": "tcp://"}
    assert strange(services) == []
    assert strange({"EYAS_QQQQQQQQ": "1"}) == ["EYAS_QQQQQQQQ: unknown setting without effect"]


STORES = {"events": "expected 'sql' or nats://", "features": "expected 'sql' or redis://"}


INVALID_STORES = (
    *(("events", one) for one in ("kafka://h", "nats://", "sql,nats://h:1", "nats://eyas:hunter2@h:4222 x")),
    *(("features", one) for one in ("memcached://h", "redis://", "sql,redis://h", "redis://:hunter2@h:6379/x", "redis://h/0 x")),
)
VALID_STORES = (
    *(("events", one) for one in ("sql", "nats://h:4222", "tls://eyas:hunter2@h:4222, nats://i")),
    *(("features", one) for one in ("sql", "redis://h:6379/0", "rediss://:hunter2@h:6379")),
)


def test_an_invalid_store_is_refused_without_its_password(monkeypatch, subtests):
    for what, value in INVALID_STORES:
        with subtests.test(what=what, value=value), monkeypatch.context() as patched:
            patched.setenv(f"EYAS_{what.upper()}", value)
            with pytest.raises(Invalid, match=f"^EYAS_{what.upper()}: {STORES[what]}") as caught:
                Settings.read({})
            assert "hunter2" not in str(caught.value)


def test_events_may_go_to_a_stream_and_features_to_redis(monkeypatch, subtests):
    for what, value in VALID_STORES:
        with subtests.test(what=what, value=value), monkeypatch.context() as patched:
            patched.setenv(f"EYAS_{what.upper()}", value)
            found = Settings.read({})
            assert getattr(found, what).get_secret_value() == value
            assert "hunter2" not in repr(found)


OIDC = {
    "EYAS_OIDC_ISSUER": "https://sso.example.org/realms/ml",
    "EYAS_OIDC_AUDIENCE": "eyas",
    "EYAS_OIDC_ROLES": '{"ml": {"role": "admin"}, "shop": {"role": "operator", "recommenders": ["films"]}}',
    "EYAS_OIDC_CLIENT_ID": "console",
    "EYAS_CONSOLE_URL": "https://eyas.example.org",
}


@pytest.mark.requirement("U-12")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"EYAS_OIDC_ISSUER": "http://sso.example.org"}, "EYAS_OIDC_ISSUER: expected https://HOST[/PATH]"),
        ({"EYAS_OIDC_ISSUER": "https://user:secret@sso.example.org"}, "EYAS_OIDC_ISSUER: expected https://HOST[/PATH]"),
        ({"EYAS_OIDC_ISSUER": None}, "EYAS_OIDC_AUDIENCE needs the provider: set EYAS_OIDC_ISSUER"),
        ({"EYAS_OIDC_AUDIENCE": None, "EYAS_OIDC_CLIENT_ID": None}, "EYAS_OIDC_ISSUER needs EYAS_OIDC_AUDIENCE"),
        ({"EYAS_OIDC_ROLES": None}, "EYAS_OIDC_ISSUER needs EYAS_OIDC_ROLES"),
        ({"EYAS_OIDC_ROLES": "ml=admin"}, "EYAS_OIDC_ROLES"),
        ({"EYAS_OIDC_ROLES": '{"ml": {"role": "viewer"}, "ml": {"role": "admin"}}'}, "each group once"),
        ({"EYAS_OIDC_AUDIENCE": ""}, "EYAS_OIDC_AUDIENCE"),
        ({"EYAS_OIDC_ISSUER": "https://sso.example.org?a=b"}, "EYAS_OIDC_ISSUER: expected https://HOST[/PATH]"),
        ({"EYAS_OIDC_ROLES": '{"ml": {"role": "root"}}'}, "EYAS_OIDC_ROLES"),
        ({"EYAS_OIDC_ROLES": '{"ml": {"role": "viewer", "recommenders": []}}'}, "EYAS_OIDC_ROLES"),
        ({"EYAS_CONSOLE_URL": None}, "EYAS_OIDC_CLIENT_ID needs EYAS_CONSOLE_URL"),
        ({"EYAS_CONSOLE_URL": "http://eyas.example.org"}, "EYAS_CONSOLE_URL: expected https://HOST[:PORT] without a path"),
        ({"EYAS_CONSOLE_URL": "https://eyas.example.org/console"}, "EYAS_CONSOLE_URL: expected https://HOST[:PORT] without a path"),
        ({"EYAS_OIDC_SCOPES": "email"}, "EYAS_OIDC_SCOPES needs the scope openid"),
    ],
)
def test_settings_of_an_identity_provider_are_complete_or_refused_in_one_line(monkeypatch, changes, message):
    for name, value in (OIDC | changes).items():
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(Invalid) as refused:
        Settings.read({})
    assert message in str(refused.value) and "\n" not in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.requirement("U-12")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"EYAS_AUDIT_EXPORT": "audit.jsonl"}, "EYAS_AUDIT_EXPORT: expected an absolute path of a file, or http(s)://HOST[:PORT][/PATH]"),
        ({"EYAS_AUDIT_EXPORT": "/var/log/"}, "EYAS_AUDIT_EXPORT: expected an absolute path of a file"),
        ({"EYAS_AUDIT_EXPORT": "http://a..b/"}, "EYAS_AUDIT_EXPORT: expected an absolute path of a file"),
        ({"EYAS_AUDIT_EXPORT": "https://user:secret@collector"}, "EYAS_AUDIT_EXPORT: expected an absolute path"),
        ({"EYAS_AUDIT_EXPORT": "https://collector/?token=secret"}, "EYAS_AUDIT_EXPORT: expected an absolute path"),
        ({"EYAS_AUDIT_EXPORT_TOKEN_FILE": "/t"}, "EYAS_AUDIT_EXPORT_TOKEN_FILE needs EYAS_AUDIT_EXPORT with an https address"),
        (
            {"EYAS_AUDIT_EXPORT": "http://collector", "EYAS_AUDIT_EXPORT_TOKEN_FILE": "/t"},
            "EYAS_AUDIT_EXPORT_TOKEN_FILE needs EYAS_AUDIT_EXPORT with an https address",
        ),
    ],
)
def test_a_wrong_audit_export_is_refused_in_one_line(monkeypatch, settings, message):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Invalid) as refused:
        Settings.read({})
    assert message in str(refused.value) and "secret" not in str(refused.value)


@pytest.mark.requirement("U-12")
def test_roles_of_groups_are_read(monkeypatch):
    for name, value in OIDC.items():
        monkeypatch.setenv(name, value)
    assert role_rules(Settings.read({})) == (RoleRule("ml", Role.ADMIN), RoleRule("shop", Role.OPERATOR, frozenset({"films"})))
