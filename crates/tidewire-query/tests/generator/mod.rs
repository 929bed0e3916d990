//! Random documents and queries with tiny domains, so that ties, nulls, arrays and changes of type occur. The same seed gives the same.
#![allow(dead_code, reason = "each test program uses a part")]

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn list(&mut self, max: usize, mut item: impl FnMut(&mut Self) -> String) -> String {
        let items: Vec<String> = (0..self.below(max + 1)).map(|_| item(self)).collect();
        items.join(",")
    }

    pub fn scalar(&mut self) -> String {
        self.pick(&[
            "null", "0", "1", "2", "1.5", "-1", "\"\"", "\"a\"", "\"ab\"", "\"b\"", "\"1\"",
            "true", "false",
        ])
        .into()
    }

    pub fn value(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 4 } else { 8 }) {
            0..=3 => self.scalar(),
            4 | 5 => format!("[{}]", self.list(3, |it| it.value(depth - 1))),
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> String {
        let mut members = Vec::new();
        for key in ["a", "b", "c", "0"] {
            if self.below(3) == 0 {
                members.push(format!("\"{key}\":{}", self.value(depth)));
            }
        }
        if self.below(4) == 0 {
            members.reverse();
        }
        format!("{{{}}}", members.join(","))
    }

    /// The value of a record, almost always an object.
    pub fn document(&mut self) -> String {
        if self.below(40) == 0 {
            return self.value(2);
        }
        let mut members = Vec::new();
        for key in ["a", "b", "c"] {
            if self.below(4) > 0 {
                members.push(format!("\"{key}\":{}", self.value(3)));
            }
        }
        format!("{{{}}}", members.join(","))
    }

    pub fn id(&mut self, count: usize) -> String {
        format!("r{}", self.below(count))
    }

    pub fn path(&mut self) -> &'static str {
        self.pick(&[
            "a", "a", "b", "c", "a.b", "a.0", "b.c", "a.0.b", "a.b.c", "b.1", "a.a",
        ])
    }

    fn operators(&mut self, depth: usize) -> String {
        let mut operators: Vec<String> = Vec::new();
        for _ in 0..=self.below(2) {
            let operator = self.operator(depth);
            let name = |text: &str| text.split(':').next().map(str::to_owned);
            if !operators.iter().any(|other| name(other) == name(&operator)) {
                operators.push(operator);
            }
        }
        operators.join(",")
    }

    fn operator(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 14 } else { 18 }) {
            0 | 1 => format!("\"$eq\":{}", self.value(1)),
            2 => format!("\"$ne\":{}", self.value(1)),
            3 => format!("\"$in\":[{}]", self.list(3, |it| it.value(1))),
            4 => format!("\"$nin\":[{}]", self.list(3, |it| it.value(1))),
            5..=8 => format!(
                "\"{}\":{}",
                self.pick(&["$lt", "$lte", "$gt", "$gte"]),
                self.scalar()
            ),
            9 => format!("\"$exists\":{}", self.pick(&["true", "false"])),
            10 => format!(
                "\"$type\":\"{}\"",
                self.pick(&["number", "string", "object", "array", "bool", "null"])
            ),
            11 => format!("\"$size\":{}", self.below(3)),
            12 => format!("\"$mod\":[{},{}]", self.below(2) + 2, self.below(2)),
            13 => format!(
                "\"$regex\":\"{}\"",
                self.pick(&["a", "^a", "b$", "^ab", "^[ab]$", "^$", "1"])
            ),
            14 => format!("\"$all\":[{}]", self.list(2, |it| it.value(1))),
            15 => format!("\"$not\":{{{}}}", self.operators(depth - 1)),
            16 => format!("\"$elemMatch\":{{{}}}", self.operators(depth - 1)),
            _ => format!("\"$elemMatch\":{}", self.selector(depth - 1)),
        }
    }

    pub fn selector(&mut self, depth: usize) -> String {
        let mut entries: Vec<String> = Vec::new();
        for _ in 0..=self.below(3).saturating_sub(1) {
            let entry = match self.below(if depth == 0 { 6 } else { 8 }) {
                0 | 1 => format!("\"{}\":{}", self.path(), self.value(1)),
                2..=5 => format!("\"{}\":{{{}}}", self.path(), self.operators(depth)),
                _ => {
                    let name = self.pick(&["$and", "$or", "$or", "$nor"]);
                    let parts: Vec<String> = (0..=self.below(2))
                        .map(|_| self.selector(depth - 1))
                        .collect();
                    format!("\"{name}\":[{}]", parts.join(","))
                }
            };
            let name = |text: &str| text.split(':').next().map(str::to_owned);
            if !entries.iter().any(|other| name(other) == name(&entry)) {
                entries.push(entry);
            }
        }
        format!("{{{}}}", entries.join(","))
    }

    pub fn sort(&mut self) -> String {
        let keys = self.list(2, |it| {
            let (path, direction) = (it.path(), it.pick(&["asc", "desc"]));
            format!("[\"{path}\",\"{direction}\"]")
        });
        format!("[{keys}]")
    }

    pub fn select(&mut self) -> String {
        let choice = self.below(2);
        let paths = self.list(2, |it| {
            format!("\"{}\":{choice}", it.pick(&["a", "b", "c.a", "c.b", "c.c"]))
        });
        format!("{{{paths}}}")
    }
}
