//! Multiple-choice tasks: the rows of four data sets, and the prompts that are made of them.
//!
//! Prompts and choices are those of EleutherAI's lm-evaluation-harness without examples before the question
//! (lm_eval/tasks/{arc,hellaswag,winogrande,mmlu/default}@4e7e0d47f), so that the figures of both can be compared.

use serde_json::{Map, Value};

use super::problems::Problems;
use crate::Error;

/// The data set that a task's rows are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// allenai/ai2_arc: a question of science, each choice a continuation.
    Arc,
    /// Rowan/hellaswag: the end of a short story.
    HellaSwag,
    /// winogrande: a sentence with a gap. The rest of the sentence is scored after each option.
    WinoGrande,
    /// cais/mmlu: a question and four lettered choices. The letters are scored.
    Mmlu,
}

impl TaskKind {
    /// The data set's name.
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Arc => "ARC",
            TaskKind::HellaSwag => "HellaSwag",
            TaskKind::WinoGrande => "WinoGrande",
            TaskKind::Mmlu => "MMLU",
        }
    }
}

/// The questions of one file.
#[derive(Clone, Debug)]
pub struct Task {
    /// The file, as the caller names it.
    pub path: String,
    /// The data set that its rows are like.
    pub kind: TaskKind,
    /// The questions, in the order of the rows.
    pub questions: Vec<Question>,
    /// Fields that no row of the data set has, and the line of the first. They have no effect.
    pub unknown: Vec<(String, usize)>,
}

/// A question with its choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The choices.
    pub choices: Vec<Choice>,
    /// The right choice, from 0.
    pub answer: usize,
}

/// A choice: a text that is scored after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The text before.
    pub context: String,
    /// The text that is scored.
    pub continuation: String,
    /// Characters of the choice, by which `acc_norm` divides; `None` if the harness has no `acc_norm` for the task.
    pub length: Option<usize>,
}

/// The choices of a row, and which of them is right.
type Choices = (Vec<Choice>, usize);

/// What the rows of a data set hold.
struct Form {
    kind: TaskKind,
    /// Fields that each row must have. A dot leads into an object.
    fields: &'static [&'static str],
    /// Fields of the published rows that neither prompts nor answers depend on.
    inert: &'static [&'static str],
    question: fn(&mut Row<'_>) -> Option<Choices>,
}

static FORMS: [Form; 4] = [
    Form {
        kind: TaskKind::Arc,
        fields: &["question", "choices.text", "choices.label", "answerKey"],
        inert: &["id"],
        question: arc,
    },
    Form {
        kind: TaskKind::HellaSwag,
        fields: &["activity_label", "ctx_a", "ctx_b", "endings", "label"],
        // `ctx` is `ctx_a` and `ctx_b`; the harness joins them itself.
        inert: &["ctx", "ind", "source_id", "split", "split_type"],
        question: hellaswag,
    },
    Form {
        kind: TaskKind::WinoGrande,
        fields: &["sentence", "option1", "option2", "answer"],
        inert: &["qID"],
        question: winogrande,
    },
    Form {
        kind: TaskKind::Mmlu,
        fields: &["question", "subject", "choices", "answer"],
        inert: &[],
        question: mmlu,
    },
];

impl Form {
    /// The form that most of the fields of a row belong to, the first of equals.
    fn of(names: &[String]) -> Option<&'static Form> {
        let best = FORMS.iter().rev().max_by_key(|form| form.found(names))?;
        (best.found(names) > 0).then_some(best)
    }

    fn found(&self, names: &[String]) -> usize {
        self.fields.iter().filter(|field| names.iter().any(|name| name == *field)).count()
    }

    fn is_whole(&self, names: &[String]) -> bool {
        self.found(names) == self.fields.len()
    }

    fn knows(&self, name: &str) -> bool {
        self.fields.contains(&name) || self.inert.contains(&name)
    }
}

/// Reads files of one JSON object a line, each a path and its text. Blank lines are skipped.
///
/// # Errors
/// [`Error::Rows`] with all problems of all files: a row that is not JSON, lacks a field, is of another data set than
/// the first of its file, or has an answer that is not one of its choices.
pub fn parse(files: &[(String, String)]) -> Result<Vec<Task>, Error> {
    let mut problems = Problems::default();
    let tasks: Vec<Task> = files.iter().filter_map(|(path, text)| one(path, text, &mut problems)).collect();
    problems.none()?;
    Ok(tasks)
}

/// The task of one file; `None` if no row is of a known data set.
fn one(path: &str, text: &str, problems: &mut Problems) -> Option<Task> {
    let (mut first, mut questions, mut unknown) = (None, vec![], vec![]);
    for (line, row) in (1..).zip(text.lines()).filter(|(_, row)| !row.trim().is_empty()) {
        let fields = match serde_json::from_str(row) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => {
                problems.add(path, line, "the row is not an object");
                continue;
            }
            Err(error) => {
                problems.add(path, line, format!("the row is not JSON, from column {}", error.column()));
                continue;
            }
        };
        let names = names(&fields);
        let own = Form::of(&names);
        let Some(form) = first.or(own) else {
            problems.add(path, line, format!("the row has no field of a known task: wanted {}", wanted()));
            continue;
        };
        first = Some(form);
        if let Some(own) = own.filter(|own| own.is_whole(&names) && !form.is_whole(&names)) {
            let (own, form) = (own.kind.name(), form.kind.name());
            problems.add(path, line, format!("the row is one of {own}, and the first row is one of {form}"));
            continue;
        }
        for name in names.into_iter().filter(|name| !form.knows(name)) {
            if !unknown.iter().any(|(known, _)| *known == name) {
                unknown.push((name, line));
            }
        }
        let mut row = Row { fields: &fields, faults: vec![] };
        let question = (form.question)(&mut row);
        row.faults.into_iter().for_each(|fault| problems.add(path, line, fault));
        questions.extend(question.map(|(choices, answer)| Question { line, choices, answer }));
    }
    if first.is_none() && problems.are_none_of(path) {
        problems.add(path, 1, "the file has no rows");
    }
    first.map(|form| Task { path: path.to_owned(), kind: form.kind, questions, unknown })
}

/// The names of all fields; those of an object in the row as `object.field`.
fn names(fields: &Map<String, Value>) -> Vec<String> {
    let of = |(name, value): (&String, &Value)| match value {
        Value::Object(inner) => inner.keys().map(|key| format!("{name}.{key}")).collect(),
        _ => vec![name.clone()],
    };
    fields.iter().flat_map(of).collect()
}

fn wanted() -> String {
    let form = |form: &Form| format!("{} ({})", form.kind.name(), form.fields.join(", "));
    FORMS.iter().map(form).collect::<Vec<_>>().join(", ")
}

/// A row, and what is wrong with it.
struct Row<'a> {
    fields: &'a Map<String, Value>,
    faults: Vec<String>,
}

impl<'a> Row<'a> {
    /// The value of a field; a dot leads into an object.
    fn value(&mut self, name: &str) -> Option<&'a Value> {
        let found = match name.split_once('.') {
            Some((object, field)) => self.fields.get(object).and_then(|object| object.get(field)),
            None => self.fields.get(name),
        };
        if found.is_none() {
            self.faults.push(format!("`{name}` is missing"));
        }
        found
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.value(name)?;
        value.as_str().or_else(|| self.fault(name, value, "a text"))
    }

    fn texts(&mut self, name: &str) -> Option<Vec<&'a str>> {
        let value = self.value(name)?;
        let texts =
            value.as_array().and_then(|all| all.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        texts.filter(|all| !all.is_empty()).or_else(|| self.fault(name, value, "a list of texts"))
    }

    /// Notes that a field has another value than is wanted.
    fn fault<T>(&mut self, name: &str, value: &Value, wanted: &str) -> Option<T> {
        let shown: String = value.to_string().chars().take(40).collect();
        self.faults.push(format!("`{name}` is {shown}: wanted {wanted}"));
        None
    }
}

/// The same context before each continuation, with a space between.
fn after(context: &str, choices: impl IntoIterator<Item = String>, normed: bool) -> Vec<Choice> {
    let choice = |text: String| Choice {
        context: context.to_owned(),
        length: normed.then(|| text.chars().count()),
        continuation: format!(" {text}"),
    };
    choices.into_iter().map(choice).collect()
}

fn arc(row: &mut Row<'_>) -> Option<Choices> {
    let (question, key) = (row.text("question"), row.value("answerKey"));
    let (texts, labels) = (row.texts("choices.text"), row.texts("choices.label"));
    let (question, key, texts, labels) = (question?, key?, texts?, labels?);
    if texts.len() != labels.len() {
        let (texts, labels) = (texts.len(), labels.len());
        row.faults.push(format!("`choices.text` has {texts} entries and `choices.label` {labels}"));
        return None;
    }
    let answer = labels.iter().position(|label| key == label);
    let answer = answer.or_else(|| row.fault("answerKey", key, &format!("one of {}", labels.join(", "))))?;
    let context = format!("Question: {question}\nAnswer:");
    Some((after(&context, texts.into_iter().map(str::to_owned), true), answer))
}

fn hellaswag(row: &mut Row<'_>) -> Option<Choices> {
    let (activity, first, second) = (row.text("activity_label"), row.text("ctx_a"), row.text("ctx_b"));
    let (endings, label) = (row.texts("endings"), row.value("label"));
    let (activity, first, second, endings, label) = (activity?, first?, second?, endings?, label?);
    // Published as a text; as a number by its authors.
    let number = label.as_str().map_or_else(|| label.as_u64(), |text| text.parse().ok());
    let answer = number.and_then(|n| usize::try_from(n).ok()).filter(|n| *n < endings.len());
    let wanted = || format!("the number of an ending, 0 to {}", endings.len() - 1);
    let answer = answer.or_else(|| row.fault("label", label, &wanted()))?;
    let context = without_markup(&format!("{activity}: {first} {}", capitalized(second)));
    Some((after(&context, endings.into_iter().map(without_markup), true), answer))
}

fn winogrande(row: &mut Row<'_>) -> Option<Choices> {
    let options = ["option1", "option2"].map(|name| (name, row.text(name)));
    let (sentence, answer) = (row.text("sentence"), row.value("answer"));
    for (name, option) in options {
        if option.is_some_and(|option| option.trim().is_empty()) {
            row.faults.push(format!("`{name}` is empty"));
        }
    }
    let (sentence, answer) = (sentence?, answer?);
    let Some((before, rest)) = sentence.split_once('_') else {
        row.faults.push("`sentence` has no gap: wanted `_` in place of an option".to_owned());
        return None;
    };
    let right = ["1", "2"].iter().position(|number| answer == number);
    let right = right.or_else(|| row.fault("answer", answer, "\"1\" or \"2\""))?;
    let continuation = format!(" {}", rest.trim_matches(is_space));
    let choice = |(_, option): (_, Option<&str>)| {
        let context = format!("{before}{}", option?);
        Some(Choice { context, continuation: continuation.clone(), length: None })
    };
    Some((options.into_iter().map(choice).collect::<Option<_>>()?, right))
}

fn mmlu(row: &mut Row<'_>) -> Option<Choices> {
    const LETTERS: [&str; 4] = ["A", "B", "C", "D"];
    let (question, subject) = (row.text("question"), row.text("subject"));
    let (choices, answer) = (row.texts("choices"), row.value("answer"));
    let (question, subject, choices, answer) = (question?, subject?, choices?, answer?);
    if choices.len() != LETTERS.len() {
        row.faults.push(format!("`choices` has {} entries: wanted 4", choices.len()));
        return None;
    }
    let right = (0..).zip(LETTERS).position(|(number, letter)| *answer == number || *answer == letter);
    let right = right.or_else(|| row.fault("answer", answer, "0 to 3, or \"A\" to \"D\""))?;
    let subject = subject.replace('_', " ");
    let mut context = format!(
        "The following are multiple choice questions (with answers) about {subject}.\n\n{}\n",
        question.trim_matches(is_space)
    );
    for (letter, choice) in LETTERS.iter().zip(choices) {
        context.extend([*letter, ". ", choice, "\n"]);
    }
    context.push_str("Answer:");
    Some((after(&context, LETTERS.map(str::to_owned), false), right))
}

/// What Python's `strip` takes away.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// The first letter in upper case, the others in lower case, as Python's `capitalize`.
fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + &chars.as_str().to_lowercase()
    })
}

/// A text of HellaSwag without the marks that WikiHow's pages have left in it: `[header]`, ` [title]`, `[step]`.
fn without_markup(text: &str) -> String {
    let text = text.trim_matches(is_space).replace(" [title]", ". ");
    let (mut out, mut rest) = (String::new(), text.as_str());
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        rest = match after.split_once(']').filter(|(mark, _)| !mark.contains('\n')) {
            Some((_, after)) => after,
            None => {
                out.push('[');
                after
            }
        };
    }
    out.push_str(rest);
    out.replace("  ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARC: &str =
        r#"{"id":"x","question":"Q?","choices":{"text":["é 1","b"],"label":["1","2"]},"answerKey":"2"}"#;
    const MMLU: &str =
        r#"{"question":" Q?\n","subject":"high_school_physics","choices":["w","x","y","z"],"answer":2}"#;

    fn parsed(text: &str) -> Result<Vec<Task>, Error> {
        parse(&[("t.jsonl".to_owned(), text.to_owned())])
    }

    fn question(text: &str) -> Question {
        parsed(text).unwrap().remove(0).questions.remove(0)
    }

    fn choice(context: &str, continuation: &str, length: Option<usize>) -> Choice {
        Choice { context: context.to_owned(), continuation: continuation.to_owned(), length }
    }

    #[test]
    fn prompts_are_those_of_the_harness() {
        let arc = question(ARC);
        let context = "Question: Q?\nAnswer:";
        assert_eq!(arc.choices, [choice(context, " é 1", Some(3)), choice(context, " b", Some(1))]);
        assert_eq!((arc.line, arc.answer), (1, 1));
        let hellaswag = question(
            r#"{"activity_label":"Tea","ctx_a":"[header] Boil [title] water.","ctx_b":"THE cup  ","endings":["a [step] b","[x"],"label":"0"}"#,
        );
        let context = "Tea: Boil. water. The cup";
        assert_eq!(hellaswag.choices, [choice(context, " a b", Some(3)), choice(context, " [x", Some(2))]);
        let winogrande =
            question(r#"{"sentence":"If _ goes, _ goes. ","option1":"Al ","option2":"Bo","answer":"2"}"#);
        let rest = " goes, _ goes.";
        assert_eq!(winogrande.choices, [choice("If Al ", rest, None), choice("If Bo", rest, None)]);
        assert_eq!(winogrande.answer, 1);
        let mmlu = question(MMLU);
        let context = "The following are multiple choice questions (with answers) about high school physics.\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:";
        assert_eq!(mmlu.choices.len(), 4);
        assert_eq!((&mmlu.choices[3], mmlu.answer), (&choice(context, " D", None), 2));
    }

    #[test]
    fn answers_are_numbers_or_texts_where_people_have_both() {
        assert_eq!(question(&MMLU.replace(":2", ":\"B\"")).answer, 1);
        let hellaswag = r#"{"activity_label":"","ctx_a":"a","ctx_b":"","endings":["x","y"],"label":1}"#;
        assert_eq!(question(hellaswag).answer, 1);
    }

    #[test]
    fn marks_end_on_their_line() {
        assert_eq!(without_markup(" a [b\n] c [d] [e"), "a [b\n] c [e");
        assert_eq!(capitalized("éA B"), "Éa b");
    }

    #[test]
    fn all_problems_are_named_at_once_and_equal_ones_together() {
        let rows = [
            ARC,
            "",
            "{",
            "[1]",
            MMLU,
            r#"{"question":"Q?","choices":{"text":["a"],"label":["A","B"]},"answerKey":"C"}"#,
            r#"{"question":7,"choices":{"text":["a"],"label":["A"]}}"#,
            &ARC.replace("\"2\"}", "2}"),
            "{",
        ];
        let error =
            parse(&[("a.jsonl".to_owned(), rows.join("\n")), ("b.jsonl".to_owned(), "{\"x\":1}".to_owned())]);
        let said = error.unwrap_err().diagnostics().problems();
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(
            said,
            [
                "`a.jsonl:3`: the row is not JSON, from column 1 (and 1 more, the last in line 9)",
                "`a.jsonl:4`: the row is not an object",
                "`a.jsonl:5`: the row is one of MMLU, and the first row is one of ARC",
                "`a.jsonl:6`: `choices.text` has 1 entries and `choices.label` 2",
                "`a.jsonl:7`: `question` is 7: wanted a text",
                "`a.jsonl:7`: `answerKey` is missing",
                "`a.jsonl:8`: `answerKey` is 2: wanted one of 1, 2",
                "`b.jsonl:1`: the row has no field of a known task: wanted ARC (question, choices.text, choices.label, \
                 answerKey), HellaSwag (activity_label, ctx_a, ctx_b, endings, label), WinoGrande (sentence, option1, \
                 option2, answer), MMLU (question, subject, choices, answer)",
            ]
        );
        assert!(parsed(" \n").unwrap_err().to_string().contains("the file has no rows"));
    }

    #[test]
    fn answers_that_are_no_choice_are_refused() {
        let hellaswag = r#"{"activity_label":"A","ctx_a":"a","ctx_b":"","endings":["x","y"],"label":"2"}"#;
        let winogrande = r#"{"sentence":"a _ b","option1":"x","option2":" ","answer":""}"#;
        for (row, says) in [
            (hellaswag, "`label` is \"2\": wanted the number of an ending, 0 to 1"),
            (winogrande, "`option2` is empty\n`t.jsonl:1`: `answer` is \"\": wanted \"1\" or \"2\""),
            (&winogrande.replace('_', "-"), "`sentence` has no gap"),
            (&MMLU.replace(":2", ":4"), "`answer` is 4: wanted 0 to 3, or \"A\" to \"D\""),
            (&MMLU.replace(",\"z\"", ""), "`choices` has 3 entries: wanted 4"),
            (&MMLU.replace("\"z\"", "null"), "wanted a list of texts"),
        ] {
            let said = parsed(row).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn fields_that_no_data_set_has_are_listed_once() {
        let with = ARC.replace("\"2\"}", "\"2\",\"level\":1}").replace("\"label\"", "\"extra\":[],\"label\"");
        let task = parsed(&[ARC, &with, &with].join("\n")).unwrap().remove(0);
        assert_eq!(task.questions.len(), 3);
        assert_eq!(task.unknown, [("choices.extra".to_owned(), 2), ("level".to_owned(), 2)]);
    }
}
