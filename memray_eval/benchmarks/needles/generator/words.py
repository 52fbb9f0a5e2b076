"""The words that keys, names and prose are made of. No adjective ends in another, no noun begins
with another, so no key is within another key; Chinese ones have two characters each."""

from __future__ import annotations

ADJECTIVES = {
    "en": tuple(
        """
        amber ancient arctic autumn azure bashful blazing blissful bold brave breezy bright brisk
        bronze bubbly calm candid careful charming cheerful chilly classic clever cloudy coastal
        copper coral cosmic cozy crimson crispy curious curly daring dashing dazzling decent deep
        delicate dense devoted diligent distant double dreamy dusty eager earnest easy ebony elastic
        elder electric elegant eloquent emerald enormous epic exotic fabled faint faithful famous
        fancy fearless feisty festive fierce fluffy forgotten fragile frank free fresh friendly
        frosty frozen frugal gallant generous gentle giant gifted gilded glad gleaming glossy golden
        graceful grand grateful grave gray green gritty handsome handy happy hardy harmonic hasty
        hazel hearty heavy hidden hollow honest humble hungry husky icy ideal idle immense indigo
        inner ivory jagged jaunty jolly jovial joyful jumbo keen kind knotty lavish lazy leafy lean
        legal limber lilac lively lofty lonely loyal lucid lucky lunar magic marble maroon mellow
        merry mighty mild minty misty modest mossy muddy muffled murky musical mystic naive narrow
        native neat nimble noble noisy nordic normal novel oaken oblong odd olive opal orange
        organic ornate outer oval paisley pale patient peachy pearly pebbly placid plain polar
        polite prime proud pure purple quaint quick quiet rapid rare raspy ready rigid roaming
        robust rosy rough round royal ruby rugged rural rustic rusty sacred sable salty sandy
        sapphire satin scarlet secluded serene shady sharp shiny shy silent silken silver simple
        sincere sleek slender slow smoky smooth snowy sober soft solar solemn solid sparkly speedy
        spry stable steady steep sticky still stony stormy stout sturdy subtle sudden sunny supple
        sweet swift tall tame tangy tawny tender thorny thrifty tidy timid tiny tranquil turquoise
        twilit urban vague valiant vast velvet verdant vibrant violet vivid wandering warm wary wavy
        weary whimsical white wild windy winding wintry wise witty wobbly wooden woolly yearly
        yellow young zany zealous
    """.split()
    ),
    "zh": tuple(
        """
        温柔 安静 明亮 古老 遥远 清澈 宽阔 沉默 勇敢 善良 聪明 谨慎 热情 冷静 快乐 忧郁 神秘 朴素
        华丽 简单 坚固 柔软 光滑 粗糙 轻盈 沉重 细长 圆润 方正 弯曲 笔直 高耸 低矮 深邃 浅淡 浓郁
        芬芳 甜美 苦涩 清凉 炎热 寒冷 干燥 湿润 新鲜 陈旧 完整 破碎 整齐 凌乱 繁忙 空旷 拥挤 寂静
        喧闹 平坦 崎岖 陡峭 平缓 蜿蜒 银色 金色 绿色 蓝色 红色 紫色 白色 黑色 灰色 橙色 粉色 青色
        棕色 墨色 米色 雪白 碧绿 湛蓝 鲜红 漆黑 勤劳 懒散 诚实 谦虚 骄傲 大方 节俭 固执 灵活 机敏
        迟缓 敏捷 稳重 活泼 腼腆 开朗 严肃 幽默 慷慨 耐心 精致 粗犷 优雅 庄重 典雅 质朴 新颖 奇特
        平凡 罕见 珍贵 廉价 耐用 脆弱 坚韧 锋利 迟钝 透明 浑浊 晶莹 早春 盛夏 深秋 隆冬 清晨 正午
        黄昏 午夜 朦胧 晴朗 多云 微凉 温暖 潮湿 凉爽 闷热 飘逸 端正 挺拔 茂密 稀疏 荒凉 富饶 贫瘠
        繁华 冷清 热闹 宁静 祥和 欢快 悠扬 低沉 响亮 清脆 沙哑 柔和 刺眼 暗淡 耀眼 斑驳 修长 娇小
        魁梧 苍老 年轻 稚嫩 成熟 淳朴 豪爽 细心 粗心 勇猛 胆小 倔强 随和 文雅 豁达 坦率 含蓄 淡泊
        香甜 酸甜 麻辣 清淡 醇厚 松脆 绵软 滚烫 冰凉 温热 崭新 古旧 嫩绿 金黄 火红 乳白 淡蓝 深紫
        浅灰 翠绿 狭窄 辽阔 幽深 开阔 曲折 险峻 平静 汹涌 湍急 缓慢
    """.split()
    ),
}
NOUNS = {
    "en": tuple(
        """
        acorn airship almond anchor anvil apron arrow atlas attic badger bagpipe bakery balcony
        bamboo banjo barley basket beacon beetle bicycle blanket blossom bonfire bottle boulder
        bracelet bramble bridge bucket buffalo butter button cabbage cabin cactus camel canal candle
        canoe canyon caravan castle cedar cello cherry chimney cinnamon citadel clarinet clover
        cobweb coconut compass cottage cradle crater cricket crystal curtain cushion cymbal daisy
        dolphin domino donkey dragonfly drawer drum dulcimer eagle easel eclipse elbow elm ember
        engine falcon feather fiddle finch flagpole flute forest fountain fox galaxy galleon gander
        garden garlic gazelle geyser ginger giraffe glacier goblet goose granite grape guitar hammer
        hammock harbor harp hawk hazelnut hedgehog helmet heron hickory honeycomb horizon hourglass
        iceberg iguana inkwell island ivy jacket jaguar jasmine jewel jigsaw jungle juniper kayak
        kettle keyhole kimono kitchen kitten koala lagoon lantern lark lattice lemon leopard lettuce
        library lighthouse lizard lobster locket lotus lynx magnet magpie mandolin mango mantle
        maple marigold market meadow melon mermaid meteor mirror mitten molehill monsoon moose
        mosaic mulberry museum mushroom napkin needle nest nightingale notebook nutmeg oar oasis
        obelisk ocean octopus orchard orchid oriole ostrich otter oyster paddle pagoda palace
        panther papaya parrot pasture peach peacock pebble pelican pendulum pepper petal piano
        pickle pigeon pillow pistachio planet plateau plum pocket pond poppy porcupine prairie
        puddle pumpkin puppet pyramid quail quarry quartz quill quilt rabbit raccoon radish raft
        rainbow raven reef ribbon river robin rocket rooftop rooster saddle saffron sailboat salmon
        sandal scarf scooter seagull shamrock shovel skylark sleigh snail sparrow spindle spoon
        squirrel staircase starfish stream sunflower swallow sycamore tablet tambourine tapestry
        teapot temple terrace thicket thimble thistle thunder tiger timber toffee tomato topaz torch
        tortoise tower trumpet tulip tunnel turnip turtle umbrella unicorn valley vase vessel
        village vineyard viola volcano waffle wagon walnut walrus waterfall weasel whistle willow
        windmill wolf woodpecker wreath yacht yarrow zebra zeppelin zinnia
    """.split()
    ),
    "zh": tuple(
        """
        灯塔 石桥 木船 风车 水井 钟楼 花园 果园 竹林 松林 湖泊 河流 山谷 山峰 草原 沙漠 海岛 海湾
        瀑布 溪流 书桌 茶壶 铜镜 油灯 蜡烛 画卷 毛笔 砚台 信封 日历 钥匙 铁锁 木箱 竹篮 陶罐 瓷碗
        银勺 围巾 手套 草帽 雨伞 斗篷 皮靴 布鞋 丝带 纽扣 口袋 书包 地图 罗盘 望远 沙漏 风筝 陀螺
        木马 秋千 口琴 笛子 古筝 琵琶 二胡 铜锣 手鼓 钢琴 提琴 号角 铃铛 狐狸 松鼠 刺猬 野兔 山羊
        水牛 骆驼 白马 老虎 豹子 黑熊 大象 长颈 孔雀 仙鹤 燕子 麻雀 喜鹊 乌鸦 猎鹰 天鹅 海鸥 企鹅
        鲤鱼 鲸鱼 海豚 章鱼 海龟 螃蟹 龙虾 贝壳 珊瑚 蝴蝶 蜻蜓 蜜蜂 蟋蟀 蚂蚁 萤火 蜗牛 牡丹 荷花
        菊花 兰花 梅花 桂花 茉莉 玫瑰 百合 水仙 杜鹃 海棠 芍药 桃树 柳树 杨树 槐树 银杏 枫树 橡树
        榕树 樱桃 苹果 葡萄 石榴 核桃 板栗 红枣 西瓜 南瓜 冬瓜 黄瓜 萝卜 白菜 土豆 玉米 小麦 高粱
        大豆 花生 芝麻 蜂蜜 面包 豆腐 饺子 馒头 年糕 月饼 火炉 烟囱 屋顶 窗台 走廊 庭院 阁楼 地窖
        粮仓 磨坊 码头 渡口 集市 驿站 书院 戏台 城墙 城门 宝塔 凉亭 石阶 小巷 广场 车站 铁轨 隧道
        流星 彩虹 晨雾 晚霞 雪花 冰川 闪电 雷声 微风 细雨 月亮 星空 云海 浪花 火山 温泉 岩石 泥土
        琥珀 水晶 算盘 印章 折扇 屏风 石磨 木梯 藤椅 竹席 棉被 枕头 铁锅 砂锅 水桶 扁担 锄头 镰刀
        斧头 锤子 剪刀 针线 茶园 麦田 稻田 菜地 池塘 水库 堤坝 运河 沼泽 峡谷 丘陵 高原 盆地 雨林
        牧场 农庄 马厩 鸡舍 蜂巢 鸟窝
    """.split()
    ),
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONSONANTS, VOWELS = "bdfghklmnprstvz", "aeiou"
CHARACTERS = (  # coined Chinese words are made of these
    "安白宝北本冰波采草车晨成程初川春纯慈聪达大丹稻灯笛地蝶东冬豆渡朵帆方芳飞丰风峰福高歌耕公谷光广桂国果海寒航禾和河荷鹤恒虹湖花华画欢环辉火吉季佳嘉坚简江匠金锦晶井静久菊聚开康可空宽兰蓝朗乐雷黎里立丽莲良林灵岭流柳龙楼鲁鹿路绿罗马麦满茂梅美门米绵苗民明墨木牧南宁牛农暖盘鹏平坪萍朴七奇千谦前桥琴青清晴庆秋泉群然仁容柔如瑞若三桑沙山杉善上尚少深升生诗石时书舒树双水顺思松素穗泰棠桃天田亭庭桐图土晚望微薇为温文问梧西溪喜夏仙先湘向小晓新星杏雄秀旭轩雪雅烟岩盐阳杨瑶野叶一怡宜义艺银英迎永勇优游有友雨玉御元园圆远月云韵泽展章照珍正之知志智中舟竹珠竺卓紫自宗祖"
)
