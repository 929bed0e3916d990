//! `tidewire rules`: writes an initial file of rules, explains which rule decides, and runs test cases.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use tidewire_config::Problem;
use tidewire_config::value::Rules;
use tidewire_core::permission::Decision;
use tidewire_http::permission::load;
use tidewire_http::permission_report::describe;
use tidewire_http::rule_case::{Case, CaseFile, CaseText, Explained, explained, word};
use tidewire_rules::set::RuleSet;

use tidewire_server::exit::{Exit, Failure};

/// The file that `tidewire rules init` writes.
const INITIAL: &str = include_str!("rules/permissions.yml");
/// The file of rules if no option names one.
const DEFAULT_FILE: &str = "permissions.yml";

/// Writes an initial file of rules.
///
/// # Errors
/// The file already exists or can't be written.
pub fn init(path: &Path) -> Result<Exit, Failure> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(INITIAL.as_bytes()));
    let shown = path.display();
    match written {
        Ok(()) => {
            println!("{shown} written; set `permissions: {shown}` in tidewire.yml");
            Ok(Exit::Stopped)
        }
        Err(error) => Err(Failure::new(
            Exit::Configuration,
            format!("{shown}: {error}"),
        )),
    }
}

/// Loads the rules that the option names.
fn rules_of(option: &Rules) -> Result<RuleSet, Failure> {
    let path = match option {
        Rules::File(path) => path.as_path(),
        _ => Path::new(DEFAULT_FILE),
    };
    load(path).map_err(|problems| failure(&problems))
}

fn failure(problems: &[Problem]) -> Failure {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Failure::new(Exit::Configuration, lines.join("; "))
}

/// Prints which rule decides a case.
///
/// # Errors
/// The rules or the case are wrong.
pub fn explain(option: &Rules, case: CaseText) -> Result<Exit, Failure> {
    let rules = rules_of(option)?;
    let case = Case::parse(case).map_err(|reason| Failure::new(Exit::Configuration, reason))?;
    let Explained {
        outcome,
        by,
        reads,
        others,
    } = explained(&rules, &case);
    match by {
        Some(rule) => println!("{outcome} by {rule}"),
        None => println!(
            "{outcome}: no path of {} that takes the name has this rule",
            rules.file()
        ),
    }
    for (name, is_given) in &reads {
        let how = if *is_given {
            "as given"
        } else {
            "not given, so null"
        };
        println!("  reads {name:?} ({how})");
    }
    for (outcome, rule) in others {
        println!("  it would be {outcome} by {rule}");
    }
    Ok(Exit::Stopped)
}

/// Runs the cases of a file.
///
/// # Errors
/// The rules or the file are wrong.
pub fn test(option: &Rules, path: &Path) -> Result<Exit, Failure> {
    let shown = path.display().to_string();
    let wrong = |reason: String| Failure::new(Exit::Configuration, format!("{shown}{reason}"));
    let text = fs::read_to_string(path).map_err(|error| wrong(format!(": {error}")))?;
    let file = CaseFile::parse(&text).map_err(wrong)?;
    let option = match &file.permissions {
        // A path in a file is relative to the folder of that file.
        Some(named) => Rules::File(path.parent().unwrap_or(Path::new("")).join(named)),
        None => option.clone(),
    };
    let rules = rules_of(&option)?;
    let mut wrong_count = 0;
    for (line, expected, case) in &file.cases {
        let decided = case.decide(&rules);
        let is_expected = match decided.decision {
            Decision::Allow => expected.decision == Decision::Allow,
            Decision::Deny => expected.decision == Decision::Deny,
            Decision::Failed | Decision::Need(_) => expected.decision == Decision::Failed,
        };
        let decided_line = decided.rule.map(|rule| rule.position.line);
        if is_expected && expected.line.is_none_or(|line| Some(line) == decided_line) {
            continue;
        }
        wrong_count += 1;
        let by = decided
            .rule
            .map_or_else(|| "no rule".to_owned(), |rule| describe(&rules, rule));
        println!("{shown}:{line}: {} by {by}", word(&decided.decision));
    }
    println!(
        "{} of {} cases decided as expected",
        file.cases.len() - wrong_count,
        file.cases.len()
    );
    Ok(if wrong_count == 0 {
        Exit::Stopped
    } else {
        Exit::Unwell
    })
}
