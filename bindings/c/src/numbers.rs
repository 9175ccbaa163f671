//! Parts of one object by number: the registered regions of a ring.
//!
//! They live and end with their object and are found without a lock of their own. A number is a generation (upper half) and a
//! slot; slots are used again with the next generation, and one whose generations have run out is not.
#![forbid(unsafe_code)]

use crate::status::{CallResult, Refusal};

struct Slot<T> {
    generation: u32,
    part: Option<T>,
}

/// Parts of one kind.
pub(crate) struct Numbers<T> {
    word: &'static str,
    slots: Vec<Slot<T>>,
}

impl<T> Numbers<T> {
    pub(crate) fn new(word: &'static str) -> Numbers<T> {
        Numbers { word, slots: Vec::new() }
    }

    /// Gives a part its number, which is never 0.
    pub(crate) fn add(&mut self, part: T) -> CallResult<u64> {
        let free = self.slots.iter().position(|slot| slot.part.is_none() && slot.generation < u32::MAX);
        let at = free.unwrap_or(self.slots.len());
        let number = u32::try_from(at).map_err(|_| Refusal::Full(self.word))?;
        if free.is_none() {
            self.slots.push(Slot { generation: 0, part: None });
        }
        let Some(slot) = self.slots.get_mut(at) else { return Err(Refusal::Full(self.word)) };
        slot.generation += 1;
        slot.part = Some(part);
        Ok(u64::from(slot.generation) << 32 | u64::from(number))
    }

    /// The part with this number.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> CallResult<&T> {
        let slot = self.slots.get(number as u32 as usize).filter(|slot| slot.generation == (number >> 32) as u32);
        slot.and_then(|slot| slot.part.as_ref()).ok_or(Refusal::Handle { word: self.word, handle: number })
    }

    /// Ends a number, unless `end` gives the part back.
    pub(crate) fn remove(&mut self, number: u64, end: impl FnOnce(T) -> Option<T>) -> CallResult<bool> {
        self.get(number)?;
        let Some(slot) = self.slots.get_mut(number as u32 as usize) else { return Ok(false) };
        slot.part = slot.part.take().and_then(end);
        Ok(slot.part.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::Numbers;

    #[test]
    fn a_number_names_its_part_until_it_ends() {
        let mut parts = Numbers::new("part");
        let numbers: Vec<u64> = (0..5).map(|n| parts.add(n).unwrap()).collect();
        assert!(numbers.iter().enumerate().all(|(n, number)| *parts.get(*number).unwrap() == n));
        assert!(!parts.remove(numbers[2], Some).unwrap(), "given back: it stays");
        assert_eq!(*parts.get(numbers[2]).unwrap(), 2);
        assert!(parts.remove(numbers[2], |_| None).unwrap());
        assert!(parts.get(numbers[2]).is_err() && parts.remove(numbers[2], |_| None).is_err());
        let fresh = parts.add(7).unwrap();
        assert_eq!(fresh as u32, numbers[2] as u32, "the slot is used again");
        assert!(fresh != numbers[2] && parts.get(numbers[2]).is_err());
        assert_eq!(*parts.get(fresh).unwrap(), 7);
        for made_up in [0, 1, u64::MAX, fresh + 1, fresh + (1 << 32)] {
            assert!(parts.get(made_up).is_err() || numbers.contains(&made_up), "{made_up:#x}");
        }
    }
}
