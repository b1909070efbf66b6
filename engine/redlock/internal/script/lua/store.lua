-- The records of one server, read once and written at the end. A script fails before its first
-- write, or not at all: it has then read and checked every record that it changes.

local function fail(key, why)
  error('LKDATA key "' .. key .. '" ' .. why, 0)
end

local function read(command, key, ...)
  local value = redis.pcall(command, key, ...)
  if type(value) == 'table' and value.err then
    fail(key, 'can not be read by ' .. command .. ': ' .. value.err)
  end
  return value
end

-- natural reports whether a value is a whole number that Lua counts exactly.
local function natural(n)
  return type(n) == 'number' and n >= 0 and n <= 9007199254740992 and n % 1 == 0
end

local kinds = {
  n = natural,
  i = function(v) return type(v) == 'number' and natural(math.abs(v)) end,
  s = function(v) return type(v) == 'string' end,
  b = function(v) return type(v) == 'boolean' end,
  t = function(v) return type(v) == 'table' end,
}

-- unpackRecord returns the array that the packed text has, after it checked the kind of each entry.
local function unpackRecord(key, text, form)
  local ok, record, more = pcall(cmsgpack.unpack, text)
  if not ok or type(record) ~= 'table' or more ~= nil then
    fail(key, 'holds no record of Lockkeeper')
  end
  for i = 1, #form do
    if not kinds[string.sub(form, i, i)](record[i]) then
      fail(key, 'holds a damaged record: entry ' .. i .. ' is wrong')
    end
  end
  if #record ~= #form then
    fail(key, 'holds a damaged record: it has ' .. #record .. ' entries')
  end
  return record
end
