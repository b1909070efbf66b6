
-- The records of a batch are read once more after a request that is not for the batch, but not often.
local general
local replies, gathers = {}, 0
for k = 1, count do
  local at, reply = 6 * k - 1, nil
  kind, mark, id = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), ARGV[at + 2]
  a1, a2, a3 = ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  if not batch and gathers < 3 and count - k >= 2 then
    batch, gathers = gather(k), gathers + 1
  end
  if batch then
    reply = kind == CLAIM and claimMany() or kind == END and endMany()
  end
  if not reply then
    flush()
    reply = kind == CLAIM and claimOne() or kind == END and endOne()
  end
  if not reply then
    general = general or rules()
    reply = general()
  end
  replies[k] = reply
end
flush()
return replies
