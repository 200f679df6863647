//! What serde says of a value, in the words of the canonical form: those of JSON.

use super::canonical::{Form, Refused};
use serde::ser::{self, Serialize, Serializer};

/// The struct as which `serde_json` passes a number, as text, if some crate of the build has turned on its
/// `arbitrary_precision`. That must not change fingerprints, as far as numbers are kept whole without it.
const JSON_NUMBER: &str = "$serde_json::private::Number";

macro_rules! integers {
    ($($name:ident($type:ty)),*) => {$(
        fn $name(self, value: $type) -> Result<(), Refused> {
            let magnitude = value.unsigned_abs();
            self.integer(value < 0, magnitude.into());
            Ok(())
        }
    )*};
}

macro_rules! naturals {
    ($($name:ident($type:ty)),*) => {$(
        fn $name(self, value: $type) -> Result<(), Refused> {
            self.integer(false, value.into());
            Ok(())
        }
    )*};
}

impl<'a> Serializer for &'a mut Form {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Map<'a>;
    type SerializeStruct = Map<'a>;
    type SerializeStructVariant = Map<'a>;

    integers! { serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64), serialize_i128(i128) }
    naturals! { serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64), serialize_u128(u128) }

    /// As JSON: an address or an id is its text, not its bytes.
    fn is_human_readable(&self) -> bool {
        true
    }

    fn serialize_bool(self, value: bool) -> Result<(), Refused> {
        self.truth(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Refused> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Refused> {
        self.float(value);
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Refused> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), Refused> {
        self.text(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Refused> {
        value.serialize(self) // as a list: a Vec<u8> says the same, and is one to serde
    }

    fn serialize_none(self) -> Result<(), Refused> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refused> {
        self.wrapped(value)
    }

    fn serialize_unit(self) -> Result<(), Refused> {
        self.null();
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Refused> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Refused> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.wrapped(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.begin_variant(variant)?;
        value.serialize(&mut *self)?;
        self.end();
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<List<'a>, Refused> {
        List::new(self, false)
    }

    fn serialize_tuple(self, _length: usize) -> Result<List<'a>, Refused> {
        List::new(self, false)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<List<'a>, Refused> {
        List::new(self, false)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<List<'a>, Refused> {
        self.begin_variant(variant)?;
        List::new(self, true)
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Map<'a>, Refused> {
        Map::new(self, false)
    }

    fn serialize_struct(self, name: &'static str, _length: usize) -> Result<Map<'a>, Refused> {
        Ok(Map { is_json_number: name == JSON_NUMBER, ..Map::new(self, false)? })
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Map<'a>, Refused> {
        self.begin_variant(variant)?;
        Map::new(self, true)
    }
}

impl Form {
    /// Begins the map with one key as which an enum's variant with content is written.
    fn begin_variant(&mut self, name: &str) -> Result<(), Refused> {
        self.begin_map()?;
        self.text(name);
        Ok(())
    }
}

/// A list that is being written.
#[derive(Debug)]
pub(super) struct List<'a> {
    form: &'a mut Form,
    in_variant: bool,
}

impl<'a> List<'a> {
    fn new(form: &'a mut Form, in_variant: bool) -> Result<Self, Refused> {
        form.begin_list()?;
        Ok(Self { form, in_variant })
    }

    fn close(self) -> Result<(), Refused> {
        self.form.end();
        if self.in_variant {
            self.form.end();
        }
        Ok(())
    }
}

macro_rules! lists {
    ($($kind:ident::$item:ident),*) => {$(
        impl ser::$kind for List<'_> {
            type Ok = ();
            type Error = Refused;

            fn $item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
                value.serialize(&mut *self.form)
            }

            fn end(self) -> Result<(), Refused> {
                self.close()
            }
        }
    )*};
}

lists! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
}

/// A map that is being written. Its entries are sorted when it ends.
#[derive(Debug)]
pub(super) struct Map<'a> {
    form: &'a mut Form,
    start: usize,
    /// Where each key and its value begin.
    entries: Vec<(usize, usize)>,
    in_variant: bool,
    is_json_number: bool,
}

impl<'a> Map<'a> {
    fn new(form: &'a mut Form, in_variant: bool) -> Result<Self, Refused> {
        let start = form.position();
        form.begin_map()?;
        Ok(Self { form, start, entries: Vec::new(), in_variant, is_json_number: false })
    }

    fn key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        let start = self.form.position();
        key.serialize(&mut *self.form)?;
        self.entries.push((start, self.form.position()));
        Ok(())
    }

    fn close(self) -> Result<(), Refused> {
        if let [(_, value)] = self.entries[..]
            && self.is_json_number
        {
            return self.form.unwrap_json_number(self.start, value);
        }
        self.form.sort(&self.entries)?;
        self.form.end();
        if self.in_variant {
            self.form.end();
        }
        Ok(())
    }
}

impl ser::SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        self.key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        value.serialize(&mut *self.form)
    }

    fn end(self) -> Result<(), Refused> {
        self.close()
    }
}

macro_rules! structs {
    ($($kind:ident),*) => {$(
        impl ser::$kind for Map<'_> {
            type Ok = ();
            type Error = Refused;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Refused> {
                self.key(name)?;
                value.serialize(&mut *self.form)
            }

            fn end(self) -> Result<(), Refused> {
                self.close()
            }
        }
    )*};
}

structs! { SerializeStruct, SerializeStructVariant }
