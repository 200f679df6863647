//! README.md and docs/: each block of code is compiled, run, parsed or found where it is from, and each link leads
//! somewhere. What is compiled is in `src/documents.rs`, what is run in `tests/command_doc.rs`.
#![cfg(not(any(loom, shuttle)))]

use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("reading {file}: {error}"))
}

/// The pages, by their paths from the root.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders: Vec<PathBuf> = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is readable") {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.strip_prefix(root()).expect("it lies below").display().to_string());
            }
        }
    }
    pages.sort();
    assert!(pages.len() > 25, "the pages are not found: {pages:?}");
    pages
}

/// A fenced block of a page: the line of its fence, what stands behind the fence, and what is in it.
struct Block {
    line: usize,
    kind: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), blocks.last_mut()) {
            (Some(_), _) if inside => inside = false,
            (Some(kind), _) => {
                inside = true;
                blocks.push(Block { line: index + 1, kind: kind.to_owned(), text: String::new() });
            }
            (None, Some(block)) if inside => block.text += &format!("{line}\n"),
            (None, _) => {}
        }
    }
    assert!(!inside, "a block is not closed");
    blocks
}

/// What is wrong with a block, if something is: each kind has somebody who looks at it.
fn check(page: &str, block: &Block) -> Result<(), String> {
    let named_in = |file: &str, name: &str, what: &str| match read(file).contains(name) {
        true => Ok(()),
        false => Err(format!("{file} does not {what} this page")),
    };
    match block.kind.split_once(' ').map_or((block.kind.as_str(), None), |(kind, of)| (kind, Some(of))) {
        ("rust" | "rust,no_run", None) => {
            named_in("src/documents.rs", &format!("include_str!(\"../{page}\")"), "compile")
        }
        ("rs", Some(file)) => excerpt(file, &block.text),
        ("console", None) => named_in("tests/command_doc.rs", &format!("\"{page}\""), "run the examples of"),
        ("sh", None) => commands(&block.text).iter().try_for_each(|words| check_command(words)),
        ("toml", None) => toml::from_str(&block.text)
            .map_err(|error| error.to_string())
            .and_then(|table: toml::Table| check_features_of(&table)),
        ("json", None) => serde_json::from_str::<serde_json::Value>(&block.text)
            .map(drop)
            .map_err(|error| error.to_string()),
        ("text", None) => Ok(()),
        _ => Err(format!("nothing checks a block of the kind \"{}\"", block.kind)),
    }
}

/// Whether `text` stands in `file`, however far to the right.
fn excerpt(file: &str, text: &str) -> Result<(), String> {
    let lines = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let source = fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}"))?;
    let (source, text) = (lines(&source), lines(text));
    match source.windows(text.len().max(1)).any(|window| window == text) {
        true => Ok(()),
        false => Err(format!("this does not stand in {file}")),
    }
}

/// The simple commands of a script, each as its words. Good enough for what documents show.
fn commands(script: &str) -> Vec<Vec<String>> {
    let joined = script.replace("\\\n", " ");
    let word = Regex::new(r#"'[^']*'|"[^"]*"|[|;&]+|\S+"#).expect("it is a pattern");
    let mut commands = Vec::new();
    for line in joined.lines() {
        let mut words = Vec::new();
        for found in word.find_iter(line).map(|found| found.as_str()) {
            match found {
                "#" => break,
                "|" | ";" | "&&" | "||" => commands.push(std::mem::take(&mut words)),
                _ => words.push(found.trim_matches(['\'', '"']).to_owned()),
            }
        }
        commands.push(words);
    }
    commands.retain(|words| !words.is_empty());
    commands
}

fn manifest() -> toml::Table {
    toml::from_str(&read("Cargo.toml")).expect("cargo reads it too")
}

fn check_feature(name: &str) -> Result<(), String> {
    let features = manifest()["features"].as_table().expect("it is a table").contains_key(name);
    if features { Ok(()) } else { Err(format!("there is no feature {name}")) }
}

fn check_version(asked_for: &str) -> Result<(), String> {
    let own = manifest()["package"]["version"].as_str().expect("it is text").to_owned();
    if own.starts_with(asked_for) { Ok(()) } else { Err(format!("claimdb is at {own}")) }
}

/// Whether each feature of claimdb that a manifest asks for exists, and its version is this one.
fn check_features_of(table: &toml::Table) -> Result<(), String> {
    for (name, value) in table {
        match value {
            toml::Value::String(version) if name == "claimdb" => check_version(version)?,
            toml::Value::Table(inner) if name == "claimdb" => {
                let features = inner.get("features").and_then(toml::Value::as_array);
                for feature in features.into_iter().flatten() {
                    check_feature(feature.as_str().unwrap_or_default())?;
                }
                inner.get("version").and_then(toml::Value::as_str).map_or(Ok(()), check_version)?;
            }
            toml::Value::Table(inner) => check_features_of(inner)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_command(words: &[String]) -> Result<(), String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["cargo", rest @ ..] => check_cargo(rest),
        ["claimdb", rest @ ..] | ["runuser", "-u", _, "--", "claimdb", rest @ ..] => check_claimdb(rest),
        [script, ..] if root().join(script).is_file() => Ok(()),
        ["apt-get" | "awk" | "cmp" | "cp" | "curl" | "man" | "mv" | "rm" | "systemctl" | "tail", ..] => {
            Ok(())
        }
        _ => Err(format!("nobody knows the command: {}", words.join(" "))),
    }
}

fn check_cargo(words: &[&str]) -> Result<(), String> {
    let known = ["add", "bench", "build", "doc", "install", "loom", "model", "run", "shuttle", "test"];
    let ours = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    let (cargos, of_the_program) = words.split_at(ours);
    if !cargos.iter().any(|word| known.contains(word)) {
        return Err(format!("cargo {} is none of {known:?}", cargos.join(" ")));
    }
    let values =
        |option: &'static str| cargos.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1]);
    values("--features").flat_map(|list| list.split(',')).try_for_each(check_feature)?;
    let exists = |folder: &str, name: &str| {
        let folder = root().join(folder);
        match folder.join(format!("{name}.rs")).is_file() || folder.join(name).join("main.rs").is_file() {
            true => Ok(()),
            false => Err(format!("there is no {name} in {}", folder.display())),
        }
    };
    values("--example").try_for_each(|name| exists("examples", name))?;
    values("--bench").try_for_each(|name| exists("benches", name))?;
    let elsewhere = cargos.contains(&"--example") || cargos.contains(&"--bench");
    match of_the_program {
        [_, rest @ ..] if cargos.contains(&"run") && !elsewhere && !rest.is_empty() => check_claimdb(rest),
        _ => Ok(()),
    }
}

/// Whether the command line has this command, and each of its options.
fn check_claimdb(words: &[&str]) -> Result<(), String> {
    let Some(program) = option_env!("CARGO_BIN_EXE_claimdb") else { return Ok(()) };
    let [command, arguments @ ..] = words else { return Err("claimdb asks for a command".to_owned()) };
    if *command == "explore" && !cfg!(feature = "explore") {
        return Ok(());
    }
    let told = Command::new(program).args([command, "--help"]).output().expect("it can be run");
    if !told.status.success() {
        return Err(format!("there is no claimdb {command}"));
    }
    let help = String::from_utf8(told.stdout).expect("it is text");
    for option in arguments.iter().filter(|argument| argument.starts_with("--") && argument.len() > 2) {
        let option = option.split('=').next().expect("split gives one part at least");
        let listed =
            help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == option);
        if !listed {
            return Err(format!("claimdb {command} has no {option}"));
        }
    }
    Ok(())
}

#[test]
fn each_block_is_compiled_or_run_or_parsed() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&read(&page)) {
            check(&page, &block).unwrap_or_else(|wrong| panic!("{page}, line {}: {wrong}", block.line));
            seen += 1;
        }
    }
    println!("documents: {seen} blocks");
    assert!(seen > 50, "only {seen} blocks were looked at: the check looks at the wrong thing");
}

#[test]
fn the_check_refuses_blocks_that_nothing_checks_or_that_are_wrong() {
    let refused = |kind: &str, text: &str| {
        let block = Block { line: 1, kind: kind.to_owned(), text: format!("{text}\n") };
        check("docs/glossary.md", &block).err().unwrap_or_else(|| panic!("let through: {kind} {text}"))
    };
    assert_eq!(refused("", "x"), "nothing checks a block of the kind \"\"");
    assert_eq!(refused("rust,ignore", "x"), "nothing checks a block of the kind \"rust,ignore\"");
    assert_eq!(refused("python", "x"), "nothing checks a block of the kind \"python\"");
    assert_eq!(refused("rust", "x"), "src/documents.rs does not compile this page");
    assert_eq!(refused("console", "$ x"), "tests/command_doc.rs does not run the examples of this page");
    assert_eq!(refused("rs src/lib.rs", "no such line"), "this does not stand in src/lib.rs");
    assert_eq!(refused("sh", "rm -r x && frob x"), "nobody knows the command: frob x");
    assert_eq!(refused("sh", "cargo run --example nothing"), {
        format!("there is no nothing in {}", root().join("examples").display())
    });
    assert_eq!(refused("sh", "cargo test \\\n  --features sled,slid"), "there is no feature slid");
    assert_eq!(refused("toml", "claimdb = { version = \"0.1\", features = [\"slid\"] }"), {
        "there is no feature slid"
    });
    assert_eq!(refused("toml", "[dependencies]\nclaimdb = { version = \"7\" }"), "claimdb is at 0.1.0");
    assert_eq!(refused("toml", "[dependencies]\nclaimdb = \"0.2\""), "claimdb is at 0.1.0");
    assert!(refused("toml", "x = ").contains("TOML parse error"));
    assert!(refused("json", "{").contains("EOF"));
    if option_env!("CARGO_BIN_EXE_claimdb").is_some() {
        assert_eq!(refused("sh", "claimdb lisp --store x"), "there is no claimdb lisp");
        assert_eq!(refused("sh", "tail -F x | claimdb list --stores x"), "claimdb list has no --stores");
    }
}

/// The anchors that the headings of a page make, as GitHub makes them.
fn anchors(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut anchors = Vec::new();
    for line in page.lines() {
        inside ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !inside) else { continue };
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        anchors.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

#[test]
fn each_link_leads_somewhere() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("it is a pattern");
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        let folder = root().join(&page).parent().expect("a page lies in a folder").to_owned();
        for target in link.captures_iter(&text).map(|found| found[1].to_owned()) {
            if target.starts_with("https://") {
                continue;
            }
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(path.exists(), "{page} links to {target}, and there is no {}", path.display());
            if !anchor.is_empty() {
                let text = fs::read_to_string(&path).expect("a page is text");
                assert!(
                    anchors(&text).contains(&anchor.to_owned()),
                    "{page} links to {target}, which has no such part"
                );
            }
        }
    }
    assert!(seen > 100, "only {seen} links were looked at: the check looks at the wrong thing");
}

#[test]
fn the_readme_shows_what_the_peers_bench_wrote() {
    let figures: serde_json::Value =
        serde_json::from_str(&read("docs/figures/peers.json")).expect("the bench writes JSON");
    let rows = figures["full"].as_array().expect("it is a list");
    let of = |row: &serde_json::Value, threads: &str| row[threads].as_u64().expect("it is a number");
    let shown = |row: &serde_json::Value| {
        let [one, some, many] = ["threads_1", "threads_8", "threads_64"].map(|threads| of(row, threads));
        format!("| {} | {one} | {some} | {many} |", row["name"].as_str().expect("it is text"))
    };
    let readme = read("README.md");
    let part = readme.split("<!-- peers: short -->").nth(1).expect("README.md has its mark");
    let part = part.split("<!-- peers: end -->").next().expect("split gives one part at least");
    let lines: Vec<&str> = part.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let expected: Vec<_> = rows.iter().map(shown).collect();
    let all = expected.join("\n");
    assert!(lines == expected, "README.md does not show what was measured, which is\n{all}\n");
    // What it says of them in words.
    let (ours, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| shown(row).starts_with("| claimdb"));
    let faster = |threads| others.iter().filter(|row| of(row, threads) > of(ours[0], threads)).count();
    let (few, many) = (faster("threads_1"), faster("threads_64"));
    let words =
        format!("Of the {} others {few} are faster with one thread, and {many} with 64", others.len());
    assert!(readme.contains(&words), "README.md does not say: {words}");
    for threads in ["threads_1", "threads_64"] {
        assert!(of(ours[1], threads) < of(ours[0], threads), "README.md says that it is slower over redb");
    }
}

#[test]
fn the_readme_counts_the_dependencies() {
    let tree = |more: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(root())
            .args(["tree", "--edges", "normal", "--prefix", "none", "--offline"])
            .args(more);
        let told = cargo.output().expect("cargo can be run");
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let told = String::from_utf8(told.stdout).expect("it is text");
        let mut crates: Vec<_> = told.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect();
        crates.sort();
        crates.dedup();
        crates.len() - 1 // without claimdb
    };
    let (direct, all) = (tree(&["--depth", "1"]), tree(&[]));
    let says = format!("{direct} direct ones, {all} crates in all");
    assert!(read("README.md").contains(&says), "README.md does not say what cargo tree does: {says}");
    assert!(direct <= 12 && all <= 60, "that is more than the 12 and 60 that are wanted: {says}");
}

#[test]
fn each_damage_that_keeps_a_store_closed_has_its_row() {
    let page = read("docs/operations.md");
    let section = page.split("\n## Damaged store\n").nth(1).expect("there is such a part");
    let section = section.split("\n## ").next().expect("split gives one part at least");
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| ")).collect();
    let message = Regex::new(r#"#\[error\(\s*"((?:[^"\\]|\\.|\\\n)*)""#).expect("it is a pattern");
    let goes_on = Regex::new(r"\\\n\s*").expect("it is a pattern");
    let placeholder = Regex::new(r"\{[^}]*\}").expect("it is a pattern");
    let mut seen = 0;
    for found in message.captures_iter(&read("src/error/store_damage.rs")) {
        let text = goes_on.replace_all(&found[1], "");
        // What is found, without what to do about it.
        let what = text.split("; ").next().and_then(|text| text.split(": ").next()).expect("split gives one");
        let words = |piece: &str| piece.trim_matches([' ', ',', '`', '\'']).to_owned();
        let pieces: Vec<_> = placeholder.split(what).map(words).filter(|piece| piece.len() > 3).collect();
        let is_told = |row: &str| pieces.iter().all(|piece| row.contains(piece.as_str()));
        assert!(
            !pieces.is_empty() && rows.iter().any(|row| is_told(row)),
            "docs/operations.md does not say what to do about \"{text}\""
        );
        seen += 1;
    }
    assert!(seen > 25, "only {seen} messages were looked at: the check looks at the wrong thing");
}

#[test]
fn damage_that_keeps_a_store_closed_stands_in_the_one_list() {
    let mut folders = vec![root().join("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for path in
            fs::read_dir(folder).expect("it can be read").map(|entry| entry.expect("it can be").path())
        {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).expect("it is text");
            seen += source.matches("OpenError::damaged").count();
            for made in source.split("OpenError::Damaged {").skip(1) {
                let is_a_pattern = made.trim_start().starts_with("..");
                assert!(
                    is_a_pattern,
                    "{} has damage that src/error/store_damage.rs does not",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 10, "only {seen} were looked at: the check looks at the wrong thing");
}
