//! `docs/scenarios.md`: each case is in it once, and each test that it names is there.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The cases of scope.
const CASES: &str = "\
    CF-01 CF-03 CF-06 CK-01 CK-04 CK-05 CN-01 CN-03 CN-04 CN-05 CR-01 CR-03 CR-04 CR-05 CR-06 CR-07 \
    CR-08 CR-11 CR-14 CX-01 CX-02 CX-03 CX-04 CX-07 CX-08 CX-11 CX-13 CX-14 DL-01 DL-02 DL-03 DL-04 \
    FN-01 FN-02 FN-04 FN-05 FN-07 FN-08 FN-09 FN-11 FN-13 FN-14 FP-01 FP-03 FP-04 FP-05 FP-07 FP-08 \
    FP-10 HS-01 HS-02 HS-04 HS-05 HS-07 HS-08 HS-10 HS-11 KE-01 KE-03 KE-05 KE-07 LE-01 LE-02 LE-03 \
    LE-04 LE-06 LE-08 LE-09 LE-12 LE-14 LE-15 ML-01 ML-02 ML-04 ML-05 OB-03 OB-04 OB-05 OB-06 OB-09 \
    PN-01 PN-02 PN-03 PN-06 RN-01 RN-03 RN-04 RN-05 RN-07 RN-08 RN-09 RN-12 RP-01 RP-02 RP-03 RP-06 \
    RP-07 RP-08 RP-09 RP-10 RP-11 RP-12 SF-01 SF-02 SF-03 SF-05 SF-07 SF-08 SF-09 SF-11 SF-12 SF-13 \
    SF-16 SZ-01 SZ-03 SZ-04 TL-02 TL-03 TL-04 TL-06 TL-08 TL-09 TL-10 WT-01 WT-02 WT-03 WT-04 WT-05 \
    WT-06 WT-08 WT-11";

/// A row of the table.
struct Row {
    case: String,
    /// `file::test`.
    tests: Vec<String>,
    columns: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rows() -> Vec<Row> {
    let document = fs::read_to_string(root().join("docs/scenarios.md")).expect("it is there");
    table(&document)
}

fn table(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let columns: Vec<_> =
            line.trim_matches('|').split('|').map(|column| column.trim().to_owned()).collect();
        let case = columns.first().filter(|case| case.as_bytes().get(2) == Some(&b'-'))?.clone();
        let tests = columns.get(2).expect("a row has a column of tests");
        // Every second part stands between two backticks.
        let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some(Row { case, tests, columns })
    };
    text.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| case"))
        .filter_map(row)
        .collect()
}

/// Whether `file::test` is a test: a function under `#[test]`, a model, or a harness that runs itself under that name.
fn exists(test: &str) -> bool {
    let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{test} is not file::test"));
    let Ok(source) = fs::read_to_string(root().join(format!("tests/{file}.rs"))) else { return false };
    is_test(&source, name) || is_model(&source, name) || source.contains(&format!("run_as_test(\"{name}\""))
}

fn is_test(source: &str, name: &str) -> bool {
    let mut lines = source.lines().map(str::trim);
    while lines.any(|line| line == "#[test]") {
        let function = lines.by_ref().find(|line| !line.starts_with("#["));
        let found =
            function.and_then(|line| line.strip_prefix("fn ")).and_then(|line| line.split('(').next());
        if found == Some(name) {
            return true;
        }
    }
    false
}

/// Whether a list of models has one of this name, which is made a test.
fn is_model(source: &str, name: &str) -> bool {
    let list = source.split_once("models! {\n").map_or("", |(_, list)| list);
    let mut names =
        list.lines().map(str::trim).take_while(|line| *line != "}").filter_map(|line| line.split_once(", "));
    names.any(|(found, _)| found == name)
}

#[test]
fn each_case_is_in_the_document_once_and_in_order() {
    let rows = rows();
    let cases: Vec<_> = rows.iter().map(|row| row.case.as_str()).collect();
    assert!(cases.is_sorted(), "the cases are not in order: {cases:?}");
    let once: BTreeSet<_> = cases.iter().copied().collect();
    assert_eq!(cases.len(), once.len(), "a case is in the document twice");
    let expected: BTreeSet<_> = CASES.split_whitespace().collect();
    assert_eq!(once, expected);
}

#[test]
fn each_test_that_is_named_exists() {
    for Row { case, tests, columns } in rows() {
        assert_eq!(columns.len(), 4, "{case} has not four columns");
        assert!(columns.iter().all(|column| !column.is_empty()), "{case} has an empty column");
        assert!(!tests.is_empty(), "{case} names no test");
        for test in tests {
            assert!(exists(&test), "{case} names {test}, which is no test");
        }
    }
}

#[test]
fn the_check_sees_what_it_should() {
    let source = "#[test]\nfn one() {\n}\n    #[test]\n    #[ignore]\n    fn two() {}\nfn three() {}\n";
    assert!(is_test(source, "one") && is_test(source, "two"));
    assert!(!is_test(source, "three") && !is_test(source, "on"));
    let models = "fn one, two() {}\nmodels! {\n    three, None, one;\n}\nfour, five;\n";
    assert!(is_model(models, "three") && !is_model(models, "four") && !is_model(models, "None"));
    assert!(exists("kill::kill") && exists("loom_settle::waiter_against_drop"));
    assert!(!exists("kill::none") && !exists("no_such_file::none"));
    assert_eq!(table("| CR-01 | a | `x::y`, `x::z` | b |")[0].tests, ["x::y", "x::z"]);
}
