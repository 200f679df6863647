//! The documentation's table, the dashboard and the alert rules name the metrics that there are, with the labels and
//! values that they have; and the table has every metric.

use claimdb::Store;
use claimdb::backend::Mem;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use saphyr::{LoadableYamlNode as _, Yaml};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A metric as the exporter shows it: its type, and its labels with their values, that of the store left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    kind: String,
    about: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name)).unwrap()
}

/// What a store tells a recorder, from what the exporter renders.
fn shown(builder: PrometheusBuilder) -> BTreeMap<String, Shown> {
    let recorder = builder.build_recorder();
    let store = metrics::with_local_recorder(&recorder, || Store::builder(Mem::new()).open()).unwrap();
    let claim = store.claim("k").unwrap().granted().unwrap();
    claim.complete("done").unwrap(); // so that histograms show
    let page = recorder.handle().render();
    let mut shown: BTreeMap<String, Shown> = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, about)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            shown.entry(name.to_owned()).or_default().about = about.to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            shown.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((name, rest)) = line.split_once('{') {
            let labels = rest.rsplit_once('}').unwrap().0;
            let family = ["", "_bucket", "_sum", "_count"].iter().find_map(|suffix| {
                let name = name.strip_suffix(suffix)?;
                shown.contains_key(name).then(|| name.to_owned())
            });
            let shown = shown.get_mut(&family.expect("its type was told before")).unwrap();
            for (label, value) in labels.split(',').map(|label| label.split_once('=').unwrap()) {
                if !["store", "quantile", "le"].contains(&label) {
                    shown
                        .labels
                        .entry(label.to_owned())
                        .or_default()
                        .insert(value.trim_matches('"').to_owned());
                }
            }
        }
    }
    assert!(shown.len() >= 20, "{page}");
    shown
}

fn as_documented() -> BTreeMap<String, Shown> {
    // As docs/telemetry.md says.
    let buckets = [0.001, 0.01, 0.1, 1.0];
    let of = |name: &str| Matcher::Full(name.to_owned());
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(of("claimdb_sync_seconds"), &buckets).unwrap();
    shown(builder.set_buckets_for_metric(of("claimdb_sync_writes"), &buckets).unwrap())
}

#[test]
fn the_table_has_each_metric_with_its_type_its_unit_and_its_labels() {
    let page = file("telemetry.md");
    let mut documented: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `claimdb_")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "a name, a type, a unit, labels, a meaning, what to do: {row}");
        assert!(documented.insert(cells[0].trim_matches('`'), cells).is_none(), "twice: {row}");
    }
    let there = as_documented();
    let names: BTreeSet<_> = there.keys().map(String::as_str).collect();
    assert_eq!(documented.keys().copied().collect::<BTreeSet<_>>(), names, "docs/telemetry.md lists others");
    for (name, cells) in documented {
        let Shown { kind, labels, about } = &there[name];
        assert_eq!(cells[1], kind, "{name} is a {kind}");
        let unit = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")));
        assert_eq!(cells[2], unit.unwrap_or_default(), "{name}: its unit");
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, values)| {
                (label.clone(), values.iter().map(String::as_str).collect::<BTreeSet<_>>())
            })
            .collect();
        let told: Vec<_> = cells[3].split(": ").collect();
        let told = match told[..] {
            [label, values] => {
                let values = values.split(", ").map(|value| value.trim_matches('`')).collect();
                vec![(label.trim_matches('`').to_owned(), values)]
            }
            _ => Vec::new(),
        };
        assert_eq!(told, labels, "{name}: its labels");
        assert!(!cells[4].is_empty() && about.len() > 10, "{name}: what it means");
    }
}

#[test]
fn the_exporters_recommended_naming_changes_no_name() {
    let buckets = PrometheusBuilder::new().set_buckets(&[1.0]).unwrap();
    let plain: Vec<_> = as_documented().into_keys().collect();
    let recommended: Vec<_> = shown(buckets.with_recommended_naming(true)).into_keys().collect();
    assert_eq!(plain, recommended);
}

/// A query without what Grafana fills in.
fn filled_in(query: &str) -> String {
    let filled = query.replace("$__rate_interval", "5m").replace("$__range", "3h");
    filled.replace("store=~\"$store\"", "store=~\".*\"")
}

/// Checks that a query names metrics that there are, and labels and values that they have; gives the metrics.
fn check(query: &str, there: &BTreeMap<String, Shown>) -> BTreeSet<String> {
    let query = filled_in(query);
    assert!(!query.contains('$'), "nobody fills this in: {query}");
    for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
        assert_eq!(query.matches(open).count(), query.matches(close).count(), "brackets: {query}");
    }
    let mut named = BTreeSet::new();
    for (at, _) in query.match_indices("claimdb_") {
        let rest = &query[at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let is_family = |suffix: &str| {
            let shown = name.strip_suffix(suffix).and_then(|name| there.get(name));
            shown.is_some_and(|shown| (shown.kind == "histogram") != suffix.is_empty())
        };
        let suffix = ["", "_bucket", "_sum", "_count"].into_iter().find(|suffix| is_family(suffix));
        // Without buckets a histogram is a summary of its own name.
        let is_summary =
            there.get(name).is_some_and(|shown| shown.kind == "histogram") && rest.contains("quantile=");
        let family = match suffix {
            Some(suffix) => name.strip_suffix(suffix).unwrap(),
            None => name,
        };
        assert!(suffix.is_some() || is_summary, "there is no metric {name}: {query}");
        let Shown { labels, kind, .. } = &there[family];
        named.insert(family.to_owned());
        let matchers = rest.strip_prefix('{').map(|rest| rest.split_once('}').unwrap().0).unwrap_or_default();
        for matcher in matchers.split(", ").filter(|matcher| !matcher.is_empty()) {
            let (label, value) = matcher.split_once('=').unwrap();
            let value = value.trim_start_matches('~').trim_matches('"');
            let has = match label {
                "store" => true,
                "quantile" => is_summary,
                label => labels.get(label).is_some_and(|values| values.contains(value)),
            };
            assert!(has, "{name} has no {label} {value}: {query}");
        }
        // A counter is a number since some opening; only its growth says anything.
        let grows = ["rate(", "increase("].iter().any(|function| query[..at].ends_with(function));
        assert_eq!(
            kind == "counter" || suffix.is_some_and(|suffix| !suffix.is_empty()),
            grows,
            "{name}: {query}"
        );
    }
    assert!(!named.is_empty(), "it names no metric: {query}");
    // What it is grouped by is a label of what is grouped.
    for group in query.split("by (").skip(1) {
        for label in group.split(')').next().unwrap().split(", ") {
            let has = |name: &String| there[name].labels.contains_key(label);
            assert!(
                ["store", "instance", "le"].contains(&label) || named.iter().any(has),
                "no {label}: {query}"
            );
        }
    }
    named
}

#[test]
fn the_dashboard_names_what_there_is_and_shows_all_of_it() {
    let there = as_documented();
    let dashboard: serde_json::Value = serde_json::from_str(&file("telemetry/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (mut named, mut ids, mut places) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id: {panel}");
        let number = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        let (x, y, w, h) = (number("x"), number("y"), number("w"), number("h"));
        assert!(x + w <= 24, "it is wider than the page: {panel}");
        let apart = |&(x2, y2, w2, h2): &(u64, u64, u64, u64)| {
            x + w <= x2 || x2 + w2 <= x || y + h <= y2 || y2 + h2 <= y
        };
        assert!(places.iter().all(apart), "it lies on another: {panel}");
        places.push((x, y, w, h));
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let query = target["expr"].as_str().unwrap();
            named.extend(check(query, &there));
            // What each line is called is a label that is left.
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).map(|part| part.split_once("}}").unwrap().0) {
                let by = |part: &str| part.split(')').next().unwrap().split(", ").any(|name| name == label);
                assert!(query.split("by (").skip(1).any(by), "{legend} has no {label}: {query}");
            }
        }
    }
    let all: BTreeSet<_> = there.keys().cloned().collect();
    assert_eq!(named, all, "the dashboard shows each metric somewhere");
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let definition = variable["definition"].as_str().unwrap_or_default();
        assert!(definition.is_empty() || there.keys().any(|name| definition.contains(name)), "{definition}");
    }
}

#[test]
fn the_alert_rules_name_what_there_is() {
    let there = as_documented();
    let text = file("telemetry/alerts.yml");
    let documents = Yaml::load_from_str(&text).unwrap();
    let field = |node: &Yaml<'_>, name: &str| {
        node.as_mapping_get(name).and_then(|value| value.as_str().map(str::to_owned))
    };
    let groups = documents[0].as_mapping_get("groups").and_then(Yaml::as_sequence).unwrap();
    let rules: Vec<_> = groups
        .iter()
        .flat_map(|group| group.as_mapping_get("rules").and_then(Yaml::as_sequence).unwrap())
        .collect();
    assert!(rules.len() >= 10, "only {} rules", rules.len());
    let (mut names, mut named) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules {
        let name = field(rule, "alert").unwrap();
        named.extend(check(&field(rule, "expr").unwrap(), &there));
        let severity = field(rule.as_mapping_get("labels").unwrap(), "severity").unwrap();
        assert!(["page", "ticket"].contains(&severity.as_str()), "{name}: {severity}");
        let annotations = rule.as_mapping_get("annotations").unwrap();
        for what in ["summary", "action"] {
            let said = field(annotations, what).unwrap();
            assert!(said.ends_with('.'), "{name}: what it is and what to do: {said}");
        }
        assert!(names.insert(name), "two rules have one name");
    }
    for least in ["claimdb_poisoned", "claimdb_sync_running_seconds", "claimdb_late_settles_refused_total"] {
        assert!(named.contains(least), "nobody is told of {least}");
    }
}

#[test]
fn a_query_that_names_what_is_not_there_is_found() {
    let there = as_documented();
    for query in [
        "rate(claimdb_claim_total[5m])",
        "rate(claimdb_claims_total{outcome=\"lost\"}[5m])",
        "sum by (cause) (rate(claimdb_claims_total[5m]))",
        "claimdb_claims_total > 5",
        "rate(claimdb_live_claims[5m])",
        "rate(claimdb_sync_seconds[5m])",
        "rate(claimdb_poisoned_bucket[5m])",
        "rate(claimdb_claims_total[$interval])",
        "(claimdb_poisoned == 1",
        "up == 0",
    ] {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(query, &there)));
        assert!(checked.is_err(), "{query} was taken for good");
    }
    let good = "sum by (store) (rate(claimdb_claims_total{outcome=\"failed\"}[5m])) > 0";
    assert_eq!(check(good, &there).into_iter().collect::<Vec<_>>(), ["claimdb_claims_total"]);
}
