//! Requests and replies of memcached's binary protocol as scripts have them, written and read by a
//! way of their own.

use super::{Numbers, Part, Text};

/// The opcodes.
const OPCODES: [(&str, u8); 37] = [
    ("get", 0x00),
    ("set", 0x01),
    ("add", 0x02),
    ("replace", 0x03),
    ("delete", 0x04),
    ("incr", 0x05),
    ("decr", 0x06),
    ("quit", 0x07),
    ("flush", 0x08),
    ("getq", 0x09),
    ("noop", 0x0a),
    ("version", 0x0b),
    ("getk", 0x0c),
    ("getkq", 0x0d),
    ("append", 0x0e),
    ("prepend", 0x0f),
    ("stat", 0x10),
    ("setq", 0x11),
    ("addq", 0x12),
    ("replaceq", 0x13),
    ("deleteq", 0x14),
    ("incrq", 0x15),
    ("decrq", 0x16),
    ("quitq", 0x17),
    ("flushq", 0x18),
    ("appendq", 0x19),
    ("prependq", 0x1a),
    ("verbosity", 0x1b),
    ("touch", 0x1c),
    ("gat", 0x1d),
    ("gatq", 0x1e),
    ("sasl-list", 0x20),
    ("sasl-auth", 0x21),
    ("sasl-step", 0x22),
    ("gatk", 0x23),
    ("gatkq", 0x24),
    ("unknown", 0x77),
];

/// What the words of a line say.
#[derive(Default)]
struct Words {
    opcode: u8,
    status: u16,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    opaque: u32,
    /// The item's id: a number, one by name, or (of a reply) any.
    cas: Option<Part>,
    /// Lengths that are written whatever is there.
    lengths: (Option<u8>, Option<u16>, Option<u32>),
    magic: Option<u8>,
    data_type: u8,
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no such number"))
}

impl Words {
    fn read(written: &str, is_reply: bool) -> Result<Words, String> {
        let mut words = written.split(' ');
        let name = words.next().unwrap_or_default();
        let opcode = OPCODES.iter().find(|(known, _)| *known == name);
        let opcode = opcode.ok_or_else(|| format!("`{name}` is no opcode"))?.1;
        let mut read = Words { opcode, ..Words::default() };
        if is_reply {
            let status = words.next().unwrap_or_default();
            read.status = u16::from_str_radix(status, 16).map_err(|_| format!("`{status}`?"))?;
        }
        for word in words {
            let (name, text) =
                word.split_once('=').ok_or_else(|| format!("`{word}` has no `=`"))?;
            read.word(name, text)?;
        }
        Ok(read)
    }

    fn word(&mut self, name: &str, text: &str) -> Result<(), String> {
        let bytes = || Text::read(text)?.bytes(&Numbers::new());
        match name {
            "key" => self.key = bytes()?,
            "value" => self.value = bytes()?,
            "number" => self.value = number::<u64>(text)?.to_be_bytes().to_vec(),
            "extras" => self.extras = bytes()?,
            // Numbers of the extras, in their order.
            "flags" | "expiry" | "level" => {
                self.extras.extend(number::<u32>(text)?.to_be_bytes());
            }
            "delta" | "initial" => self.extras.extend(number::<u64>(text)?.to_be_bytes()),
            "opaque" => self.opaque = number(text)?,
            "cas" => {
                let named = text.strip_prefix("<CAS:").and_then(|text| text.strip_suffix('>'));
                self.cas = Some(match named {
                    _ if text == "any" => Part::Any(8),
                    Some(name) => Part::Id(name.to_owned()),
                    None => Part::Bytes(number::<u64>(text)?.to_be_bytes().to_vec()),
                });
            }
            "extras-length" => self.lengths.0 = Some(number(text)?),
            "key-length" => self.lengths.1 = Some(number(text)?),
            "body-length" => self.lengths.2 = Some(number(text)?),
            "magic" => self.magic = Some(number(text)?),
            "type" => self.data_type = number(text)?,
            _ => return Err(format!("`{name}` means nothing")),
        }
        Ok(())
    }

    fn parts(self, written: &str, magic: u8) -> Text {
        let (extras, key, value) = (self.extras, self.key, self.value);
        let body = extras.len() + key.len() + value.len();
        let mut head = vec![self.magic.unwrap_or(magic), self.opcode];
        head.extend(self.lengths.1.unwrap_or(key.len() as u16).to_be_bytes());
        head.extend([self.lengths.0.unwrap_or(extras.len() as u8), self.data_type]);
        head.extend(self.status.to_be_bytes());
        head.extend(self.lengths.2.unwrap_or(body as u32).to_be_bytes());
        head.extend(self.opaque.to_be_bytes());
        let cas = self.cas.unwrap_or(Part::Bytes(vec![0; 8]));
        let body = [extras, key, value].concat();
        let mut parts = vec![Part::Bytes(head), cas, Part::Bytes(body)];
        parts.retain(|part| *part != Part::Bytes(Vec::new()));
        Text { written: written.into(), parts }
    }
}

/// A request.
pub fn request(written: &str) -> Result<Text, String> {
    Ok(Words::read(written, false)?.parts(written, 0x80))
}

/// A reply.
pub fn reply(written: &str) -> Result<Text, String> {
    Ok(Words::read(written, true)?.parts(written, 0x81))
}
