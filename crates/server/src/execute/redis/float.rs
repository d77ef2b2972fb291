//! `INCRBYFLOAT`: exact sums of decimals with up to 17 places, where Redis has those of an x87
//! `long double`, written as it writes them. What is larger than 10^20 is a 64-bit float.

use super::Asking;
use super::arith::change;
use crate::event_log::StoredBy;
use crate::execute::Outcome;
use laneway_wire::resp::reply::put_bulk;

const NO_FLOAT: &[u8] = b"-ERR value is not a valid float\r\n";
const NOT_FINITE: &[u8] = b"-ERR increment would produce NaN or Infinity\r\n";

/// Places behind the point.
const PLACES: u32 = 17;
const ONE: i128 = 10_i128.pow(PLACES);
/// The longest text that is a number.
const TEXT_BYTES_MAX: usize = 400;

/// A number of that many places, in their unit; `None` where the text is no such number.
fn exact(text: &str) -> Option<i128> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (is_negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + places.len() == 0 {
        return None;
    }
    let mut number: i128 = 0;
    for digit in whole.bytes().chain(places.bytes()) {
        let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    let shift = i64::from(exponent) + i64::from(PLACES) - places.len() as i64;
    let power = |by: i64| 10_i128.checked_pow(u32::try_from(by).ok()?);
    let number = match shift {
        _ if number == 0 => 0,
        0.. => number.checked_mul(power(shift)?)?,
        _ => power(-shift).map_or(0, |power| {
            let rounds_up = number % power >= power - power / 2;
            number / power + i128::from(rounds_up)
        }),
    };
    Some(if is_negative { -number } else { number })
}

/// Writes such a number, without the zeros at its end.
fn written(number: i128) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let (whole, places) =
        (number.unsigned_abs() / ONE as u128, number.unsigned_abs() % ONE as u128);
    let text = format!("{sign}{whole}.{places:017}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The sum of two numbers that are written so.
fn sum(before: &[u8], by: &[u8]) -> Result<String, &'static [u8]> {
    let text = |bytes: &[u8]| {
        let fits = bytes.len() <= TEXT_BYTES_MAX;
        std::str::from_utf8(bytes).ok().filter(|_| fits).map(str::to_owned).ok_or(NO_FLOAT)
    };
    let (before, by) = (text(before)?, text(by)?);
    if let (Some(before), Some(by)) = (exact(&before), exact(&by))
        && let Some(sum) = before.checked_add(by)
    {
        return Ok(written(sum));
    }
    let float = |text: &str| text.parse::<f64>().ok().filter(|number| !number.is_nan());
    let sum = float(&before).ok_or(NO_FLOAT)? + float(&by).ok_or(NO_FLOAT)?;
    if sum.is_finite() { Ok(sum.to_string()) } else { Err(NOT_FINITE) }
}

/// Adds to the number that a key holds. `out` is scratch, too.
pub fn increment_float(asking: &Asking<'_>, key: &[u8], by: &[u8], out: &mut Vec<u8>) -> Outcome {
    // What is not a number is told of before the value is looked at.
    if let Err(words) = sum(b"0", by)
        && words == NO_FLOAT
    {
        out.extend_from_slice(words);
        return Outcome::Done;
    }
    let next = |before: Option<&[u8]>| sum(before.map_or(b"0", |text| text.trim_ascii_end()), by);
    let counters = asking.context.counters;
    let at = (key, StoredBy::Incr);
    change(asking, at, NO_FLOAT, next, out, |text, was_there, out| {
        let (hits, misses) = (&counters.incr_hits, &counters.incr_misses);
        if was_there { hits } else { misses }.bump_owner();
        put_bulk(out, text.as_bytes());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_decimals() {
        for (before, by, wanted) in [
            ("0", "0.1", Ok("0.1")),
            ("0.1", "0.2", Ok("0.3")),
            ("10.50", "0.1", Ok("10.6")),
            ("10.6", "-5", Ok("5.6")),
            ("5.0e3", "2.0e2", Ok("5200")),
            ("3", "1e-3", Ok("3.001")),
            ("-1.5", "1.5", Ok("0")),
            ("1", "-1.25", Ok("-0.25")),
            (".5", "5.", Ok("5.5")),
            ("0", "0.00000000000000001", Ok("0.00000000000000001")),
            ("0", "0.000000000000000006", Ok("0.00000000000000001")),
            ("0", "1e-400", Ok("0")),
            ("0", "169999999999999999999999999999999999999e-55", Ok("0.00000000000000002")),
            ("0", "-169999999999999999999999999999999999999e-55", Ok("-0.00000000000000002")),
            ("100000000000000000000", "1", Ok("100000000000000000001")),
            ("1e22", "1", Ok("10000000000000000000000")),
            ("", "1", Err(NO_FLOAT)),
            ("x", "1", Err(NO_FLOAT)),
            (" 1", "1", Err(NO_FLOAT)),
            ("1", "1x", Err(NO_FLOAT)),
            ("1", ".", Err(NO_FLOAT)),
            ("1", "nan", Err(NO_FLOAT)),
            ("1", "inf", Err(NOT_FINITE)),
            ("1e308", "1e308", Err(NOT_FINITE)),
        ] {
            let got = sum(before.as_bytes(), by.as_bytes());
            assert_eq!(got, wanted.map(str::to_owned), "{before} + {by}");
        }
    }
}
