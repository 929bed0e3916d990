//! Web pages that are embedded in the binary: finds the files of a built site by path and answers like a file server.
//!
//! A site is a folder in `pages/` of this crate. Browsers revalidate its files on each use, so the pages need no version in
//! their addresses. The code that mounts a site decides which users may see it.

use std::io::Write as _;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, VARY,
};
use hyper::{HeaderMap, Method, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::api::{Body, HttpResponse, TEXT, typed};

include!(concat!(env!("OUT_DIR"), "/sites.rs"));

/// The content security policy of the server's own pages: they may load from and connect to this server only, and must not be
/// framed. No script or style is inline. Text cannot become markup: `innerHTML` and similar functions fail in browsers that
/// support trusted types.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; \
                      require-trusted-types-for 'script'";
/// Bytes of the SHA-256 digest that identify a file in its tag.
const TAG_BYTES: usize = 16;
/// Compression must save more than this fraction of a file to be used: a tenth.
const SAVED_MIN: usize = 10;
/// The page of a folder.
const INDEX: &str = "index.html";
/// The ending of a page's file, which its address does not have.
const PAGE: &str = ".html";

/// A site.
#[derive(Debug)]
pub struct Site {
    /// The name of its folder.
    pub name: &'static str,
    /// The files, sorted by path.
    files: &'static [File],
}

/// A file of a site.
#[derive(Debug)]
struct File {
    /// The path relative to the site, without a leading slash.
    path: &'static str,
    bytes: &'static [u8],
    prepared: OnceLock<Prepared>,
}

/// The forms of a file, computed at its first request.
#[derive(Debug)]
struct Prepared {
    plain: Form,
    /// Absent if compression saves too little.
    gzip: Option<Form>,
}

/// One representation of a file as it is sent. Each has its own tag (RFC 9110, section 8.8.3.3).
#[derive(Debug)]
struct Form {
    bytes: Bytes,
    tag: HeaderValue,
}

impl File {
    const fn new(path: &'static str, bytes: &'static [u8]) -> Self {
        Self {
            path,
            bytes,
            prepared: OnceLock::new(),
        }
    }

    fn prepared(&self) -> &Prepared {
        self.prepared.get_or_init(|| {
            let digest = Sha256::digest(self.bytes);
            let digest = URL_SAFE_NO_PAD.encode(&digest[..TAG_BYTES]);
            let tag = |ending: &str| {
                // Letters, digits, dashes and underscores are valid in a header.
                HeaderValue::from_str(&format!("\"{digest}{ending}\""))
                    .unwrap_or(HeaderValue::from_static("\"\""))
            };
            let gzip = compressed(self.bytes).map(|bytes| Form {
                bytes,
                tag: tag("-gzip"),
            });
            Prepared {
                plain: Form {
                    bytes: Bytes::from_static(self.bytes),
                    tag: tag(""),
                },
                gzip,
            }
        })
    }

    fn answer(&self, headers: &HeaderMap) -> HttpResponse {
        let Prepared { plain, gzip } = self.prepared();
        let (form, encoding) = match gzip {
            Some(gzip) if takes_gzip(headers) => (gzip, Some("gzip")),
            _ => (plain, None),
        };
        let mut answer = HttpResponse::default();
        let is_known = knows(headers, &form.tag);
        if is_known {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            *answer.body_mut() = Body::from(form.bytes.clone());
        }
        let own = answer.headers_mut();
        own.insert(ETAG, form.tag.clone());
        let mut set = |name: HeaderName, value| own.insert(name, HeaderValue::from_static(value));
        set(CACHE_CONTROL, "no-cache");
        set(CONTENT_SECURITY_POLICY, POLICY);
        if gzip.is_some() {
            set(VARY, "Accept-Encoding");
        }
        if !is_known {
            set(CONTENT_TYPE, content_type(self.path));
            if let Some(encoding) = encoding {
                set(CONTENT_ENCODING, encoding);
            }
        }
        answer
    }
}

impl Site {
    const fn new(name: &'static str, files: &'static [File]) -> Self {
        Self { name, files }
    }

    fn file(&self, path: &str) -> Option<&'static File> {
        let found = self.files.binary_search_by_key(&path, |file| file.path);
        found.ok().map(|index| &self.files[index])
    }
}

/// A site at its path.
#[derive(Clone, Copy, Debug)]
pub struct Mounted {
    /// The path of its first page; it ends with a slash.
    at: &'static str,
    site: &'static Site,
}

impl Mounted {
    /// The site `site` at the path `at`, which ends with a slash.
    #[must_use]
    pub fn new(at: &'static str, site: &'static Site) -> Self {
        debug_assert!(at.ends_with('/'), "{at:?} must end with a slash");
        Self { at, site }
    }

    /// The answer to a request for `path`; `None` if the site has no file there.
    pub fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<HttpResponse> {
        let found = self.find(path)?;
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Some(not_allowed("this page supports only GET"));
        }
        Some(match found {
            Found::File(file) => file.answer(headers),
            Found::Folder => moved(&format!("{path}/")),
            Found::Page(name) => moved(name),
        })
    }

    fn find(&self, path: &str) -> Option<Found> {
        if path.strip_suffix('/').unwrap_or(path) == self.at.trim_end_matches('/')
            && !path.ends_with('/')
            && self.site.file(INDEX).is_some()
        {
            return Some(Found::Folder);
        }
        let rest = path.strip_prefix(self.at)?;
        if rest.is_empty() || rest.ends_with('/') {
            return self.site.file(&format!("{rest}{INDEX}")).map(Found::File);
        }
        if let Some(file) = self.site.file(rest) {
            return Some(match file.path.strip_suffix(PAGE) {
                Some(page) => Found::Page(name_of(page)),
                None => Found::File(file),
            });
        }
        if let Some(page) = self.site.file(&format!("{rest}{PAGE}")) {
            return Some(Found::File(page));
        }
        let index = self.site.file(&format!("{rest}/{INDEX}"));
        index.map(|_| Found::Folder)
    }
}

/// The result of a lookup.
enum Found {
    File(&'static File),
    /// A folder with a page, requested without the trailing slash that its relative links need.
    Folder,
    /// A page, requested by the name of its file; its address relative to that name.
    Page(&'static str),
}

/// The address of a page relative to another page of its folder. `page` is its path without the ending.
fn name_of(page: &'static str) -> &'static str {
    match page.rsplit_once('/').map_or(page, |(_, name)| name) {
        "index" => "./",
        name => name,
    }
}

fn moved(location: &str) -> HttpResponse {
    let mut answer = HttpResponse::default();
    *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
    // The location consists of names of the site's files, so it is a valid header value.
    if let Ok(location) = HeaderValue::from_str(location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

/// The compressed bytes, if compression saves enough.
fn compressed(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    let compressed = encoder.finish().ok()?;
    let pays = compressed.len() + bytes.len() / SAVED_MIN < bytes.len();
    pays.then(|| Bytes::from(compressed))
}

/// Whether the browser accepts gzip: `gzip` or `*` is listed, and its weight is not 0.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = lists.filter_map(|list| list.to_str().ok());
    let mut takes_any = false;
    for coding in codings.flat_map(|list| list.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().trim_start_matches("q=");
        let is_taken = weight.parse::<f32>().is_ok_and(|weight| weight > 0.0);
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => return is_taken,
            "*" => takes_any = is_taken,
            _ => {}
        }
    }
    takes_any
}

/// Whether the browser already has the form with this tag.
fn knows(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).iter();
    let tags = lists.filter_map(|list| list.to_str().ok());
    tags.flat_map(|list| list.split(',')).any(|listed| {
        let listed = listed.trim();
        listed == "*" || listed.strip_prefix("W/").unwrap_or(listed).as_bytes() == tag.as_bytes()
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        // Types of TypeScript have no registered media type. As plain text, a browser shows them.
        Some("txt" | "ts") => "text/plain; charset=utf-8",
        _ => UNKNOWN,
    }
}

/// The content type of files that browsers only save.
const UNKNOWN: &str = "application/octet-stream";

/// The answer to a method that a page does not have.
pub(crate) fn not_allowed(text: &str) -> HttpResponse {
    let mut answer = typed(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("{text}\n"));
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use hyper::body::Body as _;

    use super::*;

    static FILES: [File; 4] = [
        File::new("guide/first.html", b"<h1>first</h1>"),
        File::new("guide/index.html", b"<h1>guide</h1>"),
        File::new("index.html", b"<h1>site</h1>"),
        File::new("page.js", &[b'x'; 4_000]),
    ];
    /// All sites in the binary.
    static SITES: [&Site; 4] = [&ADMIN, &CLIENT, &DEMO, &DOCS];
    static SITE: Site = Site::new("site", &FILES);
    /// Bytes that a browser loads for a page of the documentation, compressed, with style, script and icon.
    const DOCS_PAGE_BYTES_MAX: usize = 60_000;
    /// Bytes of the search index, compressed, which a browser loads at the first search.
    const DOCS_INDEX_BYTES_MAX: usize = 190_000;

    fn asked(headers: &[(HeaderName, &'static str)]) -> HeaderMap {
        let pairs = headers.iter();
        pairs
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    fn answer(
        at: &'static str,
        path: &str,
        headers: &[(HeaderName, &'static str)],
    ) -> HttpResponse {
        let mounted = Mounted::new(at, &SITE);
        let answer = mounted.answer(&Method::GET, path, &asked(headers));
        answer.unwrap_or_else(|| panic!("{path} is there"))
    }

    #[test]
    fn a_path_leads_to_a_file_a_page_or_nowhere() {
        let check = |at: &'static str, path: &str, expected: Option<(u16, Option<&str>)>| {
            let answer = Mounted::new(at, &SITE).answer(&Method::GET, path, &HeaderMap::new());
            let found = answer.as_ref().map(|answer| {
                let location = answer.headers().get(LOCATION);
                let location = location.map(|location| location.to_str().expect("text"));
                (answer.status().as_u16(), location)
            });
            assert_eq!(found, expected, "{at} {path}");
        };
        let here = Some((200, None));
        check("/", "/", here);
        check("/", "/page.js", here);
        check("/", "/guide/", here);
        check("/", "/guide", Some((308, Some("/guide/"))));
        check("/", "/guide/first", here);
        check("/", "/guide/first.html", Some((308, Some("first"))));
        check("/", "/guide/index.html", Some((308, Some("./"))));
        check("/", "/index.html", Some((308, Some("./"))));
        check("/docs/", "/docs/", here);
        check("/docs/", "/docs", Some((308, Some("/docs/"))));
        check("/docs/", "/docs/guide", Some((308, Some("/docs/guide/"))));
        check("/docs/", "/docs/page.js", here);
        for path in [
            "/page.js",
            "/docspage.js",
            "/docs/other",
            "/docs/page.js/",
            "/docs/guide/first/",
            "/docs/guide/.html",
            "/docs/../page.js",
            "/docs//",
        ] {
            check("/docs/", path, None);
        }
    }

    #[test]
    fn pages_are_only_read() {
        let mounted = Mounted::new("/", &SITE);
        let answer = |method| mounted.answer(&method, "/page.js", &HeaderMap::new());
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let answer = answer(method).expect("an answer");
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert_eq!(answer.headers()["allow"], "GET, HEAD");
        }
        assert_eq!(
            answer(Method::HEAD).map(|head| head.status()),
            Some(StatusCode::OK)
        );
    }

    #[test]
    fn a_form_that_is_known_is_not_sent_again() {
        let gzip = (ACCEPT_ENCODING, "deflate, gzip;q=0.5");
        let plain = answer("/", "/page.js", &[]);
        let small = answer("/", "/page.js", std::slice::from_ref(&gzip));
        assert_eq!(plain.headers().get(CONTENT_ENCODING), None);
        assert_eq!(small.headers()[CONTENT_ENCODING], "gzip");
        let (plain, small) = (&plain.headers()[ETAG], &small.headers()[ETAG]);
        assert_ne!(plain, small);
        for (known, is_known) in [
            (format!("W/{}", small.to_str().expect("text")), true),
            (
                format!("\"other\", {}", small.to_str().expect("text")),
                true,
            ),
            ("*".to_owned(), true),
            (plain.to_str().expect("text").to_owned(), false),
        ] {
            let mut headers = asked(std::slice::from_ref(&gzip));
            headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&known).expect("text"));
            let answer = Mounted::new("/", &SITE).answer(&Method::GET, "/page.js", &headers);
            let answer = answer.expect("an answer");
            let status = if is_known { 304 } else { 200 };
            assert_eq!(answer.status().as_u16(), status, "{known}");
            let bytes = answer.body().size_hint().exact();
            assert_eq!(bytes == Some(0), is_known, "{known}");
            assert_eq!(answer.headers()[VARY], "Accept-Encoding");
            assert_eq!(answer.headers()[ETAG], small);
        }
    }

    #[test]
    fn short_answers_are_sent_uncompressed() {
        let answer = answer("/", "/", &[(ACCEPT_ENCODING, "gzip")]);
        assert_eq!(answer.headers().get(CONTENT_ENCODING), None);
        assert_eq!(answer.headers().get(VARY), None);
    }

    #[test]
    fn the_header_decides_whether_gzip_is_taken() {
        let check = |value: &'static str, expected: bool| {
            let headers = asked(&[(ACCEPT_ENCODING, value)]);
            assert_eq!(takes_gzip(&headers), expected, "{value}");
        };
        check("gzip", true);
        check("br, GZIP", true);
        check("*", true);
        check("gzip;q=0", false);
        check("gzip; q=0.0, *", false);
        check("*;q=0", false);
        check("br", false);
        check("", false);
    }

    #[test]
    fn every_file_has_a_type_and_comes_back_whole() {
        for site in SITES {
            assert!(site.files.is_sorted_by_key(|file| file.path));
        }
        for file in SITES.iter().flat_map(|site| site.files) {
            assert_ne!(content_type(file.path), UNKNOWN, "{}", file.path);
            if let Some(gzip) = &file.prepared().gzip {
                let mut bytes = Vec::new();
                let mut decoder = GzDecoder::new(&gzip.bytes[..]);
                decoder.read_to_end(&mut bytes).expect("gzip");
                assert_eq!(bytes, file.bytes, "{}", file.path);
            }
        }
    }

    #[test]
    fn pages_have_no_inline_scripts_or_styles() {
        let files = SITES.iter().flat_map(|site| site.files);
        for file in files.filter(|file| file.path.ends_with(".html")) {
            let text = std::str::from_utf8(file.bytes).expect("UTF-8");
            assert!(!text.contains("<style"), "{}", file.path);
            assert!(!text.contains(" style="), "{}", file.path);
            for script in text.split("<script").skip(1) {
                let (head, rest) = script.split_once('>').expect("a tag");
                assert!(head.contains(" src=") && rest.starts_with("</script>"));
            }
        }
    }

    /// The page of the documentation with this path; a folder's ends with a slash, or is empty.
    fn page(path: &str) -> Option<&'static File> {
        match path.is_empty() || path.ends_with('/') {
            true => DOCS.file(&format!("{path}{INDEX}")),
            false => DOCS.file(&format!("{path}{PAGE}")),
        }
    }

    #[test]
    fn links_within_the_documentation_lead_somewhere() {
        let text = |file: &File| std::str::from_utf8(file.bytes).expect("UTF-8");
        let mut count = 0;
        let mut broken = Vec::new();
        for file in DOCS.files.iter().filter(|file| file.path.ends_with(PAGE)) {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let links = text(file).split("<a ").skip(1);
            let links = links.filter_map(|link| link.split_once("href=\"")?.1.split_once('"'));
            for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
                count += 1;
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match path.strip_prefix("../") {
                    _ if path.is_empty() => Some(file),
                    Some(path) => page(path),
                    None if path == "./" => page(""),
                    None if folder.is_empty() => page(path),
                    None => page(&format!("{folder}/{path}")),
                };
                let has_anchor = |target: &File| {
                    anchor.is_empty() || text(target).contains(&format!("id=\"{anchor}\""))
                };
                if !target.is_some_and(has_anchor) {
                    broken.push(format!("{}: {link}", file.path));
                }
            }
        }
        assert_eq!(broken, Vec::<String>::new());
        assert!(count > 500, "{count} links");
    }

    #[test]
    fn pages_of_the_documentation_are_small() {
        let sent = |file: &File| {
            let Prepared { plain, gzip } = file.prepared();
            gzip.as_ref().unwrap_or(plain).bytes.len()
        };
        let shared = ["icon.svg", "page.js", "search.js", "style.css"];
        let shared: usize = shared
            .iter()
            .map(|path| sent(DOCS.file(path).expect("a shared file")))
            .sum();
        for file in DOCS.files.iter().filter(|file| file.path.ends_with(PAGE)) {
            let bytes = shared + sent(file);
            assert!(bytes <= DOCS_PAGE_BYTES_MAX, "{}: {bytes} bytes", file.path);
        }
        let index = sent(DOCS.file("search.json").expect("the index of the search"));
        assert!(index <= DOCS_INDEX_BYTES_MAX, "{index} bytes");
    }
}
