//! The page: facts of the run, the checklist, a section of plots and tables for each group of cells.

use super::figures::{CPU, DELIVERIES, ROUND, short};
use super::plot::{self, Bar};
use super::verdict::{State, verdicts};
use crate::meter::STOLEN_SHARE_MAX;
use crate::run_results::{Identity, MeasuredCell, MeasuredContender, Role, RunResults};

/// A figure of a section.
struct Column {
    figure: &'static str,
    title: &'static str,
    unit: &'static str,
    is_more_better: bool,
}

/// A section of the report: the cells of a group, and their figures.
struct Section {
    group: &'static str,
    title: &'static str,
    about: &'static str,
    columns: &'static [Column],
}

const fn column(
    figure: &'static str,
    title: &'static str,
    unit: &'static str,
    is_more_better: bool,
) -> Column {
    Column {
        figure,
        title,
        unit,
        is_more_better,
    }
}

const GRID_COLUMNS: &[Column] = &[
    column(
        DELIVERIES,
        "Deliveries per second of server processor time",
        "",
        true,
    ),
    column(ROUND, "Median round", "ms", false),
];

const LATENCY_COLUMNS: &[Column] = &[
    column("latency_ms_p99", "99th percentile of latency", "ms", false),
    column("latency_ms_p50", "Median latency", "ms", false),
    column(
        "latency_ms_p99_9",
        "99.9th percentile of latency",
        "ms",
        false,
    ),
    column(
        "server_us_per_message",
        "Server processor time per message",
        "\u{b5}s",
        false,
    ),
];

const SECTIONS: [Section; 14] = [
    Section {
        group: "grid",
        title: "Publish and subscribe",
        about: "S connections subscribe to one name, and P of them publish once per round. A round ends when every connection has \
                every message. Cells are S/P. If a server did not finish within its 120 s, its time so far is shown as &gt;.",
        columns: GRID_COLUMNS,
    },
    Section {
        group: "shards",
        title: "More than one shard",
        about: "Two shards share the single core of the server, so each publication crosses a mailbox.",
        columns: GRID_COLUMNS,
    },
    Section {
        group: "rooms",
        title: "Many names",
        about: "Each publication reaches the connections that subscribe to its name. The null server routes by name, too.",
        columns: GRID_COLUMNS,
    },
    Section {
        group: "records",
        title: "Records",
        about: "Each publication is a patch of one record to which all connections subscribe.",
        columns: GRID_COLUMNS,
    },
    Section {
        group: "acks",
        title: "Acknowledged writes",
        about: "Tidewire acknowledges a write when it is synced to disk; deepstream, on its defaults, when it is in \
                memory; the null server stores no writes.",
        columns: &[
            column(
                "acks_per_server_cpu_second",
                "Per second of server processor time",
                "",
                true,
            ),
            column("acks_per_second", "Per second", "", true),
        ],
    },
    Section {
        group: "rpc",
        title: "Requests and responses",
        about: "Requests from callers through the server to providers and back: by rpc, acknowledgement or reply.",
        columns: &[
            column(
                "requests_per_server_cpu_second",
                "Per second of server processor time",
                "",
                true,
            ),
            column("requests_per_second", "Per second", "", true),
        ],
    },
    Section {
        group: "latency",
        title: "Latency",
        about: "From the planned send time of a message to its arrival. Pairs: a message every 25 ms in each pair. Rate: ten \
                publishers, a hundred subscribers, 100,000 deliveries per second.",
        columns: LATENCY_COLUMNS,
    },
    Section {
        group: "beside",
        title: "Latency of a pair with neighbours",
        about: "A message every 25 ms, while a neighbour keeps the server busy. The stuck reader is one of the 10,000.",
        columns: LATENCY_COLUMNS,
    },
    Section {
        group: "tls",
        title: "TLS",
        about: "Publish and subscribe with and without TLS, in turn. The generator decrypts with the same library as the server.",
        columns: GRID_COLUMNS,
    },
    Section {
        group: "ticks",
        title: "Compression",
        about: "Market ticks to 1,000 recipients, one of 2,500 bytes or 20 of 155 bytes at once. The server compresses a message \
                once for all recipients, and a batch once for all recipients of the same batch. With TLS it does not compress.",
        columns: &[
            column(
                "bytes_per_delivery",
                "Received bytes per delivery",
                "bytes",
                false,
            ),
            column(
                DELIVERIES,
                "Deliveries per second of server processor time",
                "",
                true,
            ),
        ],
    },
    Section {
        group: "rules",
        title: "Permission rules",
        about: "Publish and subscribe with chat messages of 200 bytes, each of which a rule reads. 24 patterns over all sections, \
                compared with a server that allows everything.",
        columns: &[
            column(CPU, "Server processor time per delivery", "ns", false),
            column(ROUND, "Median round", "ms", false),
        ],
    },
    Section {
        group: "idle",
        title: "Memory of idle connections",
        about: "Growth of the server's proportional memory per connection; each is logged in and subscribed to two names. \
                It does not include the kernel's memory for sockets.",
        columns: &[
            column(
                "connection_bytes",
                "User memory per connection",
                "bytes",
                false,
            ),
            column(
                "connection_bytes_after_churn",
                "After churn",
                "bytes",
                false,
            ),
        ],
    },
    Section {
        group: "cluster",
        title: "Several nodes",
        about: "One node and several with the same rate for each subscriber, so that each node has the load of the single one. \
                Connections are on random nodes. Processor time is of all nodes together, without the Redis. Rivals get a tenth of \
                the publications.",
        columns: &[
            column(
                DELIVERIES,
                "Deliveries per second of processor time of all nodes",
                "",
                true,
            ),
            column("latency_ms_p50", "Median latency", "ms", false),
            column("latency_ms_p99", "99th percentile of latency", "ms", false),
        ],
    },
    Section {
        group: "connect",
        title: "New connections",
        about: "Each connection is opened, logged in, subscribed and closed.",
        columns: &[
            column("connections_per_second", "Per second", "", true),
            column(
                "connections_per_server_cpu_second",
                "Per second of server processor time",
                "",
                true,
            ),
        ],
    },
];

/// The whole page.
#[must_use]
pub fn page(results: &RunResults) -> String {
    let facts = &results.facts;
    let mut body = format!(
        "<h1>Tidewire against its rivals</h1>\n<p class=\"faint\">{}, {} run of commit {}. This run measured all figures \
         below, with the contenders in turn.</p>\n",
        escape(&facts.date),
        escape(&facts.profile),
        escape(&facts.commit)
    );
    body += &checks(results);
    for section in &SECTIONS {
        let cells = results
            .cells
            .iter()
            .filter(|cell| cell.group == section.group);
        let cells: Vec<&MeasuredCell> = cells.collect();
        if !cells.is_empty() {
            body += &section_html(section, &cells, &facts.contenders);
        }
    }
    body += &failures(results);
    body += &setting(results);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Tidewire against its rivals</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        include_str!("style.css")
    )
}

fn checks(results: &RunResults) -> String {
    let mut html = "<h2>Targets</h2>\n<ul class=\"checks\">\n".to_owned();
    for verdict in verdicts(results) {
        let class = match verdict.state {
            State::Met => "met",
            State::NotMet => "not-met",
            State::NotMeasured => "not-measured",
        };
        html += &format!(
            "<li><strong class=\"{class}\">{}</strong>: {} <small>{}</small></li>\n",
            super::state(verdict.state),
            escape(verdict.line),
            escape(&verdict.figures)
        );
    }
    html + "</ul>\n"
}

fn section_html(section: &Section, cells: &[&MeasuredCell], contenders: &[Identity]) -> String {
    let mut html = format!("<h2>{}</h2>\n<p>{}</p>\n", section.title, section.about);
    for column in section.columns {
        html += &table(column, cells, contenders);
    }
    // The first column is the one that counts; the tables have the others.
    let Some(column) = section.columns.first() else {
        return html;
    };
    html += &format!(
        "<h3>{}, logarithmic</h3>\n<div class=\"plots\">\n",
        escape(column.title)
    );
    for cell in cells {
        let bar = |one: &'_ MeasuredContender| {
            let figure = one.figure(column.figure)?;
            Some((one.title.clone(), one.role, figure))
        };
        let mut found: Vec<_> = cell.contenders.iter().filter_map(bar).collect();
        found.sort_by(|a, b| b.2.value.total_cmp(&a.2.value));
        let bars: Vec<Bar<'_>> = found
            .iter()
            .map(|(title, role, figure)| Bar {
                title,
                role: *role,
                value: figure.value,
                // If a server was interrupted, only its times are bounds, not its rate.
                is_bound: figure.is_bound && !column.is_more_better,
            })
            .collect();
        let label = format!("{}, {}", cell.title, column.title);
        let svg = plot::bars(&label, column.unit, &bars);
        let title = escape(&cell.title);
        html += &format!("<figure><figcaption><h3>{title}</h3></figcaption>\n{svg}</figure>\n");
    }
    html + "</div>\n"
}

/// Contenders as rows, cells as columns; under each figure its ratio to the null server and the best rival.
fn table(column: &Column, cells: &[&MeasuredCell], contenders: &[Identity]) -> String {
    let unit = match column.unit {
        "" => String::new(),
        unit => format!(", {unit}"),
    };
    let mut html = format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<caption>{title}{unit}</caption>\n\
         <thead><tr><th scope=\"col\">Server</th>",
        title = escape(column.title)
    );
    for cell in cells {
        html += &format!("<th scope=\"col\">{}</th>", escape(&cell.title));
    }
    html += "</tr></thead>\n<tbody>\n";
    for contender in contenders {
        let entries: Vec<String> = cells
            .iter()
            .map(|cell| entry(column, cell, &contender.name))
            .collect();
        if entries.iter().all(String::is_empty) {
            continue;
        }
        let class = if contender.role == Role::Tidewire {
            " class=\"tidewire\""
        } else {
            ""
        };
        html += &format!(
            "<tr{class}><th scope=\"row\">{}</th>",
            escape(&contender.title)
        );
        for entry in entries {
            let entry = if entry.is_empty() { "–" } else { &entry };
            html += &format!("<td>{entry}</td>");
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

fn entry(column: &Column, cell: &MeasuredCell, name: &str) -> String {
    let Some(one) = cell.contenders.iter().find(|one| one.name == name) else {
        return String::new();
    };
    let Some(figure) = one.figure(column.figure) else {
        return one
            .failure
            .as_ref()
            .map_or(String::new(), |_| "failed".to_owned());
    };
    let bound = if figure.is_bound && !column.is_more_better {
        "&gt; "
    } else {
        ""
    };
    let mut entry = format!("{bound}{}", short(figure.value));
    if one.role != Role::Null
        && let Some(null) = cell
            .of(Role::Null, column.figure)
            .filter(|null| *null > 0.0)
    {
        entry += &format!("<small>{} of null</small>", short(figure.value / null));
    }
    if one.role == Role::Tidewire
        && let Some((rival, best)) = cell.best_rival(column.figure, column.is_more_better)
        && best > 0.0
    {
        let ratio = short(figure.value / best);
        entry += &format!("<small>{ratio} x {}</small>", escape(rival));
    }
    entry
}

/// Failures, and turns in which the generator was too slow or the machine's host took a part.
fn failures(results: &RunResults) -> String {
    let mut items = String::new();
    for cell in &results.cells {
        for one in &cell.contenders {
            let label = format!("{} in {}", escape(&one.title), escape(&cell.title));
            if let Some(why) = &one.failure {
                items += &format!("<li>{label}: {}</li>\n", escape(why));
            }
            if one.turns.iter().any(|turn| turn.generator_was_bottleneck) {
                items += &format!(
                    "<li>{label}: the generator was the bottleneck and decided the figures that depend on wall time</li>\n"
                );
            }
            let disturbed = one.turns.iter().filter(|turn| turn.is_disturbed()).count();
            if disturbed > 0 {
                items += &format!(
                    "<li>{label}: in {disturbed} of {} turns the machine's host used more than {} % of a processor</li>\n",
                    one.turns.len(),
                    STOLEN_SHARE_MAX * 100.0
                );
            }
        }
    }
    match items.is_empty() {
        true => String::new(),
        false => format!("<h2>Remarks</h2>\n<ul>\n{items}</ul>\n"),
    }
}

fn setting(results: &RunResults) -> String {
    let facts = &results.facts;
    let cores = match facts.cores_apart {
        true => "separate cores for server and generator",
        false => "server and generator share a core, so all times are too long",
    };
    let mut html = format!(
        "<h2>Machine and versions</h2>\n<dl>\n<dt>Machine</dt><dd>{}</dd>\n<dt>Cores</dt><dd>{cores}</dd>\n",
        escape(&facts.machine)
    );
    for contender in &facts.contenders {
        html += &format!(
            "<dt>{}</dt><dd>{}</dd>\n",
            escape(&contender.title),
            escape(&contender.version)
        );
    }
    html + "</dl>\n<p>The null server moves the same bytes on the same loop without any logic. Socket.IO's servers parse and write \
            JSON; Bun's publish and NATS do not parse messages. Of the rivals only deepstream stores data. The same generator \
            drives all servers, and no server returns messages to their sender.</p>\n"
}

/// Text for HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn fixture_page() -> String {
        let grid = |id: &str, title: &str| {
            fixture::cell(id, "grid", title, &[(DELIVERIES, 48e6), (ROUND, 11.0)])
        };
        let mut disturbed = grid("grid-100-10", "100/10");
        disturbed.contenders[0].turns[0].stolen_share = 0.02;
        page(&fixture::results(vec![
            disturbed,
            grid("grid-1000-500", "1000/500"),
        ]))
    }

    #[test]
    fn a_page_has_the_facts_of_its_run() {
        let page = fixture_page();
        for fact in [
            "abc123",
            "2 cores, a test",
            "bun 1.2.3",
            // Tidewire's figure, its ratios to null server and best rival.
            "48.0 M<small>0.960 of null</small><small>12.0 x bun &amp; co</small>",
            "11.0<small>1.10 of null</small><small>0.110 x bun &amp; co</small>",
            // Cut off, and failed.
            "&gt; 120 k",
            "<td>failed</td>",
            "connection 3: &lt;reset&gt;",
            "tidewire &amp; co in 100/10: in 1 of 1 turns the machine's host used more than 1 % of a processor",
            "grid-1000-500: 12.50 x",
            "<strong class=\"met\">met</strong>",
            "<strong class=\"not-measured\">not measured</strong>",
        ] {
            assert!(page.contains(fact), "{fact} is missing in {page}");
        }
        assert!(
            !page.contains("More than one shard"),
            "a group without cells"
        );
    }

    #[test]
    fn a_page_needs_no_other_file() {
        let page = fixture_page();
        for outside in [
            "http:", "https:", "src=", "href=", "@import", "url(", "<script",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        let count = |part: &str| page.matches(part).count();
        for tag in ["table", "svg", "figure", "ul", "dl", "main", "section"] {
            let open = count(&format!("<{tag}>")) + count(&format!("<{tag} "));
            assert_eq!(open, count(&format!("</{tag}>")), "{tag}");
        }
        assert_eq!(count("<table>"), count("<caption>"));
        assert_eq!(count("<svg "), count("role=\"img\""));
    }
}
