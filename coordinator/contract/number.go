package contract

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scalarValue is a scalar as JSON has it. YAML's dates are texts, as written.
func scalarValue(node *yaml.Node) (any, error) {
	switch node.Tag {
	case "!!null":
		return nil, nil
	case "!!bool":
		return truth(node)
	case "!!int", "!!float":
		text, ok := jsonNumber(node.Value)
		if !ok {
			return nil, fmt.Errorf("%q is no number of JSON", node.Value)
		}
		return json.Number(text), nil
	case "!!str", "!!timestamp":
		if node.Style == 0 && largeNumber.MatchString(node.Value) {
			return nil, fmt.Errorf("%.32s is larger than any number that can be read; write a text in "+
				"quotes", node.Value)
		}
		return node.Value, nil
	default:
		return nil, fmt.Errorf("a value of kind %s", node.Tag)
	}
}

// largeNumber is a number as JSON has it. The YAML parser takes one that no double
// holds, as 1e400 or a whole number of 400 digits, for a text.
var largeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// truth reads true and false, as YAML 1.2 has them.
func truth(node *yaml.Node) (bool, error) {
	is := strings.EqualFold(node.Value, "true")
	if node.Tag != "!!bool" || !is && !strings.EqualFold(node.Value, "false") {
		return false, fmt.Errorf("%q is no truth", node.Value)
	}
	return is, nil
}

// jsonNumber writes a number of YAML as JSON: as it is where JSON has it too,
// exactly otherwise.
func jsonNumber(text string) (string, bool) {
	if json.Valid([]byte(text)) {
		return text, true
	}
	plain := strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+")
	if n, ok := new(big.Int).SetString(plain, 0); ok && !leadingZero(plain) {
		return n.String(), true // 0x1f, 0o17, 1_000
	}
	sign := ""
	if strings.HasPrefix(plain, "-") {
		sign, plain = "-", plain[1:]
	}
	if strings.HasPrefix(plain, ".") { // .5
		plain = "0" + plain
	}
	plain = strings.Replace(plain, ".e", ".0e", 1)
	if strings.HasSuffix(plain, ".") { // 5.
		plain += "0"
	}
	return sign + plain, json.Valid([]byte(plain))
}

// leadingZero reports whether text is a number that some read as octal.
func leadingZero(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'
}
