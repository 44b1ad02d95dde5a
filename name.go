package tonbo

import "fmt"

// ValidateName tells whether name may name a database or an instance key: 1 to 200 of letters, digits and . _ : @ -, beginning with a letter
// or digit. The error is [ErrName] and says what is wrong.
func ValidateName(name string) error {
	if name == "" || len(name) > 200 {
		return fmt.Errorf("%w %.40q: it has %d bytes, 1 to 200 are allowed", ErrName, name, len(name))
	}
	for i := range len(name) {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		switch {
		case alnum:
		case i == 0:
			return fmt.Errorf("%w %q: it must begin with a letter or digit", ErrName, name)
		case c == '.' || c == '_' || c == ':' || c == '@' || c == '-':
		default:
			return fmt.Errorf("%w %q: byte %d is %q; letters, digits and . _ : @ - are allowed", ErrName, name, i+1, string(c))
		}
	}
	return nil
}
